"""How much attention does the first token get, or the key that gets most?

`first` is the mass on the first token of the sequence, averaged over the rows after the first. The first row is left
out because in a causal stack it can only attend to itself, so it would always add 1/n.

`sink` is the largest column mean: for each key the mean weight over the other rows that may attend to it, then the
maximum over keys. A causal mask hides late keys from most rows, so column sums would favour early keys, and means over
very few rows would favour late keys. Therefore a mean is over the rows that may attend to the key (Gu et al. 2024), and
keys with too few such rows are not candidates. The row of the key itself does not count: attention of tokens to
themselves does not make a sink.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Self

import torch
from torch import Tensor

from headscope.heads import Head
from headscope.statistics.base import ANY, SHARES, Definition, PerSequence, Quantities, stack_order
from headscope.tables import TableRow

FEWEST_ROWS = 8  # a previous-token head gives each key the mass of one row: at 8 rows or more, its sink is at most 1/8
QUARTER = 0.25  # a candidate needs this share of the rows that may attend to the most visible key
TIE = 1e-6  # columns that differ by less count as equal; then the first of them is the sink


class Sinks(PerSequence):
    definitions = {
        "first": Definition(
            "share",
            "Attention to the first token",
            "Share of attention to the first token of the sequence, averaged over the other queries (in "
            "cross-attention: over all queries).",
            ANY,
        ),
        "sink": Definition(
            "share",
            "Attention to the strongest sink",
            "Mean attention to the token of a text that receives most, over the other tokens that may attend to it. "
            "Tokens that few others may attend to (fewer than 8, or fewer than a quarter of the "
            "largest such number) do not count.",
            SHARES,
        ),
    }

    quantities = frozenset({"column_mass", "diagonal", "visibility"})

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        # How often each token id, and each position, was the sink. The size is bounded by vocabulary and text length.
        self._tokens: dict[Head, Counter[int]] = {}
        self._positions: dict[Head, Counter[int]] = {}

    def measure(self, attention: Quantities) -> Tensor | None:
        # Its rows are the tokens to predict, in any order, so "first" has no meaning.
        if attention.site.stack == "query":
            return None
        received, own = attention.column_mass, _own_mass(attention)
        columns = column_means(attention, received, own)
        largest = columns.amax(dim=-1)
        first = first_mass(attention, received, own)
        if attention.lens == "raw":
            self._count(attention, columns, largest)
        sink = torch.where(largest < 0, torch.nan, largest)
        return torch.stack([first, sink], dim=-1)

    def _count(self, attention: Quantities, columns: Tensor, largest: Tensor) -> None:
        positions = (columns >= largest[..., None] - TIE).int().argmax(dim=-1)  # [sequence, head]
        ids = attention.key.ids
        tokens = torch.full_like(positions, -1) if ids is None else ids.gather(1, positions)
        has_sink = largest >= 0
        for i, head in enumerate(attention.site.heads(positions.shape[1])):
            rows = has_sink[:, i]
            self._positions.setdefault(head, Counter()).update(positions[rows, i].tolist())
            self._tokens.setdefault(head, Counter()).update(tokens[rows, i].tolist())

    def merge(self, other: Self) -> Self:
        for merged, added in ((self._tokens, other._tokens), (self._positions, other._positions)):
            for head, counts in added.items():
                merged.setdefault(head, Counter()).update(counts)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """Rows of sinks: for each head the most frequent sink token and position; how often the sink is first."""
        if "sink" not in self.names:
            return {}
        rows: list[TableRow] = []
        for head in sorted(self._positions, key=stack_order):
            positions, tokens = self._positions[head], self._tokens[head]
            count = sum(positions.values())
            if not count:
                continue
            token, of_token = _most_common(tokens)
            position, of_position = _most_common(positions)
            rows.append(
                {
                    **asdict(head),
                    "token_id": token,
                    "token_share": of_token / count,
                    "position": position,
                    "position_share": of_position / count,
                    "first_share": positions[0] / count,
                    "count": count,
                }
            )
        return {"sinks": rows}


def _own_mass(attention: Quantities) -> Tensor | None:
    """[sequence, head, token]: weight of a token on itself; None if queries and keys are of two texts."""
    return attention.diagonal if attention.within_one_text else None


def first_mass(attention: Quantities, received: Tensor, own: Tensor | None) -> Tensor:
    """[sequence, head]: mass on the first key, averaged over the rows that see other keys; NaN without such rows.

    received, own  [sequence, head, key]: mass on a key from all rows, and from its own
    """
    of_first, rows = received[..., 0], attention.lengths.to(received.dtype)[:, None]
    if own is not None:
        of_first, rows = of_first - own[..., 0], rows - 1
    is_defined = (rows > 0) & (attention.key_lengths[:, None] > 1)
    return torch.where(is_defined, of_first / rows.clamp_min(1), torch.nan)


def column_means(attention: Quantities, received: Tensor, own: Tensor | None) -> Tensor:
    """[sequence, head, key]: mean weight over the other rows that may attend to a key; -1 if there are too few.

    received, own  [sequence, head, key]: mass on a key from all rows, and from its own
    """
    visibility = attention.visibility
    rows = visibility.row_counts
    if own is not None:
        received, rows = received - own, rows - visibility.own.long()
    needed = (QUARTER * rows.amax(dim=-1, keepdim=True)).clamp_min(FEWEST_ROWS)
    has_choice = (attention.key_lengths > 1)[:, None, None]
    return torch.where((rows >= needed) & has_choice, received / rows.clamp_min(1), -1.0)


def _most_common(counts: Counter[int]) -> tuple[int, int]:
    """The most frequent value and its count; if several are equally frequent, the smallest value."""
    return min(counts.items(), key=lambda item: (-item[1], item[0]))
