"""`TokenMap`: how much every token of one input contributes to every other, through all heads, for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TokenMap(Result):
    """The token maps of one input, as `headscope.token_map` returns them.

    Attributes
    ----------
    by
        The name of the map.
    maps
        {stack: [layer, form, query, key]}: how much token `key` contributes to token `query`.
    how
        One or two sentences: what a number means and what its row sums to.
    tokens
        {stack: (query tokens, key tokens)}: the tokens along both axes, as the tokenizer prints them.
    forms
        Names of the maps of each layer. Most token maps have one form.
    shares
        Whether numbers are shares: between 0 and 1, with rows that sum to at most 1.
    layers
        Names of the layers; None if they are numbered from 0.

    Examples
    --------
    >>> result = headscope.token_map("minilm", "The cat sat.")
    >>> list(result.table().columns)
    ['stack', 'layer', 'form', 'query', 'query_token', 'key', 'key_token', 'value']
    """

    by: str
    maps: Mapping[str, NDArray[np.float32]]
    how: str
    tokens: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    forms: tuple[str, ...] = ("all heads",)
    shares: bool = True
    layers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for stack, values in self.maps.items():
            expected = (len(self.forms), *map(len, self.tokens[stack]))
            if values.ndim != 4 or values.shape[1:] != expected:
                raise ValueError(
                    f"{stack} {values.shape}: expected [layer, {', '.join(map(str, expected))}]"
                )

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{stack} {' x '.join(map(str, values.shape))}" for stack, values in self.maps.items()
        )
        return f"TokenMap({self.by!r}: {sizes})"

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """One table, `token_map`: see `table`."""
        return {"token_map": self.table()}

    @property
    def record(self) -> Mapping[str, object]:
        """The name of the map, what its numbers mean, and the tokens."""
        return {"by": self.by, "how": self.how, "tokens": self.tokens}

    def table(self) -> pd.DataFrame:
        """One row per cell: stack, layer, form, query, query_token, key, key_token, value."""
        import pandas as pd

        frames = []
        for stack, values in self.maps.items():
            layer, form, query, key = (index.ravel() for index in np.indices(values.shape))
            queries, keys = (np.array(names, dtype=object) for names in self.tokens[stack])
            columns = {
                "stack": stack,
                "layer": layer
                if self.layers is None
                else np.array(self.layers, dtype=object)[layer],
                "form": np.array(self.forms, dtype=object)[form],
                "query": query,
                "query_token": queries[query],
                "key": key,
                "key_token": keys[key],
                "value": values.ravel(),
            }
            frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True)
