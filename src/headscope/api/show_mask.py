"""headscope.show_mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from headscope.config.option import fill
from headscope.config.show_mask import WIDEST, ShowMaskConfig
from headscope.masks.mask_spec import check_fits, read_mask, resolve_mask, sparsity
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MaskView(Result):
    """The positions that a mask allows to attend to each other, at one length.

    name            the name of the mask
    allowed         [query, key], as attention applies it: a query without any key attends to itself
    without_keys    number of positions for which the mask itself allows no key
    """

    name: str
    allowed: Tensor = field(repr=False)
    without_keys: int

    @property
    def length(self) -> int:
        """The number of positions."""
        return len(self.allowed)

    @property
    def sparsity(self) -> float:
        """The share of pairs of positions that may not attend."""
        return sparsity(self.allowed)

    @property
    def record(self) -> dict[str, Any]:
        """Name, length, sparsity and the number of positions without keys."""
        numbers = {"length": self.length, "sparsity": self.sparsity}
        return {"mask": self.name, **numbers, "without_keys": self.without_keys}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`allowed`: a row for each query, a column for each key, 1 where the query may attend to the key."""
        import pandas as pd

        return {"allowed": pd.DataFrame(self.allowed.int().tolist())}

    def lines(self) -> Iterator[str]:
        """The mask as text: a sentence, then the grid if there are at most 40 positions."""
        yield from self.sentences()
        if self.length <= WIDEST:
            yield from self.grid()

    def sentences(self) -> Iterator[str]:
        """Sentences on the share of attention that the mask forbids."""
        length = self.length
        pairs = f"{100 * self.sparsity:.2f} % of {length} x {length} positions"
        yield f"{self.name}: {pairs} may not be attended to"
        if self.without_keys:
            yield (
                f"{self.without_keys} of {length} positions may attend to nothing: these attend to themselves"
            )

    def grid(self) -> Iterator[str]:
        """A line for each query, a block for each key that it may attend to."""
        return ("".join("█" if cell else "·" for cell in row) for row in self.allowed.tolist())


def show_mask(mask: str, config: ShowMaskConfig | None = None, **options: Any) -> MaskView:
    """Show which positions a mask lets attend to which.

    Parameters
    ----------
    mask
        A name, with parameters or not (`star`, `window:width=8`), several joined by plus signs, or a file.
    config
        Options; see `ShowMaskConfig`.
    **options
        Its fields: `length`, and `out` for a picture.

    Returns
    -------
    MaskView
        `allowed` [query, key], `sparsity`, `record`, `tables`, and `lines()` to print.

    Raises
    ------
    HeadscopeError
        If there is no such mask, or if it does not fit the length.

    Examples
    --------
    >>> view = headscope.show_mask("window:width=2", length=4)
    >>> view.allowed.int().tolist()
    [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]
    """
    (filled,) = fill("show_mask", options, (ShowMaskConfig, config))
    return _show(mask, filled)


def _show(mask: str, config: ShowMaskConfig) -> MaskView:
    pattern = read_mask(mask)
    check_fits(mask, config.length, "`mask`")
    allowed = pattern.at(config.length)[0]  # [query, key]
    without_keys = int((~allowed.any(dim=1)).sum())
    if config.out is not None:
        from headscope.report.drawing.masks import draw_mask
        from headscope.report.rendered_figures import save_figure

        save_figure(draw_mask(pattern, config.length), config.out)
    return MaskView(pattern.name, resolve_mask(allowed), without_keys)
