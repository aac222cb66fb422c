"""Which token collects attention, and how much: the first token, or the key with the largest column.

`first` is the mass on the first token of the sequence, averaged over the rows after the first. The first row is left
out because in a causal stack it sees no other key, so it would always add 1/n.

`sink` is the largest column: for each key the mean weight over the other rows that may attend to it, and then the
maximum over keys. A causal mask hides late keys from most rows, so a plain column sum would favour early keys, and a
mean over very few rows would favour late ones. Therefore only rows that can see the key count (Gu et al. 2024), its own
row does not (a head that attends to itself is not a sink), and keys seen by too few other rows are not candidates.
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

FEWEST_ROWS = 8  # a previous-token head gives each key all of one row: at most 1/8 of the rows that must see it
QUARTER = 0.25  # of the rows that see the key which is seen by most
TIE = 1e-6  # columns that differ by less count as equal: the first of them is the sink


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
            "Tokens that few others may attend to (fewer than 8, or than a quarter of the maximum) do not count.",
            SHARES,
        ),
    }

    quantities = frozenset({"column_mass", "diagonal", "visibility"})

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        # How often each token id, and each position, was the sink of a sequence: bounded by vocabulary and length.
        self._tokens: dict[Head, Counter[int]] = {}
        self._positions: dict[Head, Counter[int]] = {}

    def measure(self, attention: Quantities) -> Tensor | None:
        if attention.site.stack == "query":  # rows are the tokens to predict, in any order
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
        for mine, theirs in ((self._tokens, other._tokens), (self._positions, other._positions)):
            for head, counts in theirs.items():
                mine.setdefault(head, Counter()).update(counts)
        return super().merge(other)

    def tables(self) -> dict[str, list[TableRow]]:
        """sinks: for each head the most frequent sink token and position, and how often the sink is the first token."""
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
    """[sequence, head, token]: weight on the token itself; None where two texts are compared."""
    return attention.diagonal if attention.within_one_text else None


def first_mass(attention: Quantities, received: Tensor, own: Tensor | None) -> Tensor:
    """[sequence, head]: mass on the first key, averaged over the rows that see other keys; NaN if there is none.

    received, own  [sequence, head, key]: mass on a key from all rows, and from its own
    """
    of_first, rows = received[..., 0], attention.lengths.to(received.dtype)[:, None]
    if own is not None:
        of_first, rows = of_first - own[..., 0], rows - 1
    is_defined = (rows > 0) & (attention.key_lengths[:, None] > 1)
    return torch.where(is_defined, of_first / rows.clamp_min(1), torch.nan)


def column_means(attention: Quantities, received: Tensor, own: Tensor | None) -> Tensor:
    """[sequence, head, key]: mean weight over the other rows that may attend to a key; -1 if these are too few.

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
    """The most frequent value and its count; of several the smallest, so that order does not matter."""
    return min(counts.items(), key=lambda item: (-item[1], item[0]))
