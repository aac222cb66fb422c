"""Does each head point at a fixed distance?

For every content row, the offset (key minus query) of its largest weight on a content key. `argmax-offset` is the
most frequent offset over all content rows of the corpus; `argmax-share` is the mean over sequences of the share of
rows at that offset (Voita's positional heads: at least 90 %). Equal maxima share their row's credit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
from torch import Tensor

from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.statistics.base import Definition, Statistic
from headscope.statistics.by_offset import OffsetSums, added
from headscope.tables import Moments, Row, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Argmax(Statistic):
    definitions = {
        "argmax-share": Definition(
            "share",
            "Share of tokens whose maximum is at the commonest offset",
            "The share of content rows whose largest weight on a content key is at the argmax-offset.",
        ),
        "argmax-offset": Definition(
            "offset",
            "Commonest offset of the maximum",
            "The most frequent offset (key minus query) of a content row's largest weight on a content key.",
        ),
    }

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[Site, ShareSums] = {}

    def update(self, attention: Attention) -> None:
        if attention.within_one_text:
            self._sums.setdefault(attention.site, ShareSums()).add(attention.content_argmax_offsets)

    def merge(self, other: Self) -> Self:
        for site, sums in other._sums.items():
            self._sums.setdefault(site, ShareSums()).merge(sums)
        return self

    def table(self) -> list[Row]:
        return [row for site in sorted(self._sums) for row in self._rows_of(site) if row.statistic in self.names]

    def _rows_of(self, site: Site) -> list[Row]:
        sums = self._sums[site]
        sums.settle()
        if not sums.count:
            return []
        heads, width = sums.rows.shape
        # The most frequent; of equally frequent ones the nearest, and of two as near the one before.
        offsets = np.arange(width) - width // 2
        near = np.lexsort((offsets, abs(offsets)))
        mode = near[sums.rows.round(6)[:, near].argmax(axis=1)]
        moments = Moments((heads,))
        moments.count += sums.count
        moments.total += sums.total[np.arange(heads), mode]
        moments.total_of_squares += sums.total_of_squares[np.arange(heads), mode]
        everyone = [Head(site.stack, site.layer, head) for head in range(heads)]
        shares = rows_of(everyone, "argmax-share", moments)
        return shares + [
            replace(row, statistic="argmax-offset", value=float(offsets[mode[row.head]]), low=np.nan, high=np.nan)
            for row in shares
        ]


class ShareSums(OffsetSums):
    """Takes in how many rows of each sequence point at each offset; sums the shares, and the rows themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: NDArray[np.float64] = np.zeros((0, 1))

    def _absorb(self, values: Tensor) -> None:
        self.rows = added(self.rows, values.sum(dim=0).cpu().numpy())
        rows = values.sum(dim=-1, keepdim=True)
        defined = rows[:, 0, 0] > 0  # a sequence of special tokens alone has no answer
        super()._absorb((values / rows)[defined])

    def merge(self, other: OffsetSums) -> None:
        assert isinstance(other, ShareSums)
        super().merge(other)
        self.rows = added(self.rows, other.rows)
