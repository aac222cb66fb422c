"""Does each head point at a fixed distance?

For every content row, the offset (key minus query) of its largest weight on a content key. `argmax-offset` is the
most frequent offset over all content rows of the corpus; `argmax-share` is the mean over sequences of the share of
rows at that offset (Voita's positional heads: at least 90 %). Equal maxima share their row's credit.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.statistics.base import Definition, Statistic
from headscope.statistics.by_offset import OffsetSums
from headscope.tables import Moments, Row


class Argmax(Statistic):
    definitions = {
        "argmax-share": Definition(
            "share", "The share of content rows whose largest weight on a content key is at the argmax-offset."
        ),
        "argmax-offset": Definition(
            "tokens", "The most frequent offset (key minus query) of a content row's largest weight on a content key."
        ),
    }

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._rows: dict[Site, OffsetSums] = {}  # how many rows of the corpus point at each offset
        self._shares: dict[Site, OffsetSums] = {}  # the share of each sequence's rows

    def update(self, attention: Attention) -> None:
        if not attention.within_one_text:
            return
        counts = attention.content_argmax_offsets
        rows = counts.sum(dim=-1, keepdim=True)
        defined = rows[:, 0, 0] > 0  # a sequence of special tokens alone has no answer
        if not bool(defined.all()):
            counts, rows = counts[defined], rows[defined]
        if len(counts):
            self._rows.setdefault(attention.site, OffsetSums()).add(counts)
            self._shares.setdefault(attention.site, OffsetSums()).add(counts / rows)

    def merge(self, other: Self) -> Self:
        for mine, theirs in ((self._rows, other._rows), (self._shares, other._shares)):
            for site, sums in theirs.items():
                mine.setdefault(site, OffsetSums()).merge(sums)
        return self

    def table(self) -> list[Row]:
        rows: list[Row] = []
        for site in sorted(self._rows):
            rows += [row for row in self._rows_of(site) if row.statistic in self.names]
        return rows

    def _rows_of(self, site: Site) -> list[Row]:
        counts, shares = self._rows[site], self._shares[site]
        counts.settle()
        shares.settle()
        heads, width = counts.total.shape
        # The most frequent; of equally frequent ones the nearest, and of two as near the one before.
        offsets = np.arange(width) - width // 2
        near = np.lexsort((offsets, abs(offsets)))
        mode = near[counts.total.round(6)[:, near].argmax(axis=1)]
        moments = Moments((heads,))
        moments.count += shares.count
        moments.total += shares.total[np.arange(heads), mode]
        moments.total_of_squares += shares.total_of_squares[np.arange(heads), mode]
        low, high = moments.interval()
        rows = []
        for head in range(heads):
            address = (site.stack, site.layer, head)
            value = float(moments.mean()[head])
            rows.append(Row(*address, "argmax-share", value, float(low[head]), float(high[head]), shares.count))
            rows.append(Row(*address, "argmax-offset", float(offsets[mode[head]]), np.nan, np.nan, shares.count))
        return rows
