"""Does each head point at a fixed distance?

For every content row, the offset (key minus query) of its largest weight on a content key is determined.
`argmax-offset` is the most frequent offset over all content rows of the corpus. `argmax-share` is the share of rows at
that offset, averaged over sequences. `positional-share` counts only rows that have a content token at that offset,
because other rows cannot have their maximum there: the first token of a text has no previous one. (Voita's positional
heads have at least 90 %.) If several keys have the largest weight, they share the credit of the row. Offsets of more
than 2,048 tokens are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from headscope.heads import Site
from headscope.statistics.base import SHARES, Definition, Quantities, Statistic
from headscope.statistics.by_offset import OffsetSums, add_centred, near_offsets
from headscope.tables import Moments, Row, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Argmax(Statistic):
    definitions = {
        "argmax-share": Definition(
            "share",
            "Share of tokens with the largest weight at the most frequent offset",
            "Share of content (not special) tokens whose largest weight on such tokens is at the most frequent offset.",
            SHARES,
        ),
        "argmax-offset": Definition(
            "offset",
            "Most frequent offset of the largest weight",
            "Most frequent offset (key minus query) of the largest weight from a content token to a content token.",
            SHARES,
        ),
        "positional-share": Definition(
            "share",
            "Share at the most frequent offset, of tokens that have a token there",
            "Share of content tokens whose largest weight on content tokens is at the most frequent offset, among "
            "those that have a content token at this offset.",
            SHARES,
        ),
    }

    quantities = frozenset({"content_argmax_offsets"})

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[Site, ShareSums] = {}

    def update(self, attention: Quantities) -> None:
        if attention.within_one_text:
            counts = attention.content_argmax_offsets
            tokens = attention.query
            content = torch.nn.functional.pad(tokens.content, (0, tokens.length - 1))
            values = torch.cat([counts, content[:, None]], dim=1)
            self._sums.setdefault(attention.site, ShareSums()).add(values)

    def merge(self, other: Self) -> Self:
        for site, sums in other._sums.items():
            self._sums.setdefault(site, ShareSums()).merge(sums)
        return self

    def table(self) -> list[Row]:
        return [
            row
            for site in sorted(self._sums)
            for row in self._rows_of(site)
            if row.statistic in self.names
        ]

    def _rows_of(self, site: Site) -> list[Row]:
        sums = self._sums[site]
        sums.settle()
        if not sums.count:
            return []
        count, width = sums.rows.shape
        heads = site.heads(count)
        # The most frequent offset. Ties: the nearest of them; if two are equally near, the negative one.
        offsets = np.arange(width) - width // 2
        near = np.lexsort((offsets, abs(offsets)))
        mode = near[sums.rows.round(6)[:, near].argmax(axis=1)]
        at_mode = _moments_at(mode, sums, np.full(count, sums.count))
        shares = rows_of(heads, "argmax-share", at_mode, is_share=True)
        modes = [
            Row.without_interval(head, "argmax-offset", float(offset), row.count)
            for head, offset, row in zip(heads, offsets[mode], shares, strict=True)
        ]
        counts = sums.count_at[0, mode].astype(np.int64)
        at_mode = _moments_at(mode, sums.among_targets, counts)
        return shares + modes + rows_of(heads, "positional-share", at_mode, is_share=True)


def rows_with_a_target(content: Tensor) -> Tensor:
    """[sequence, offset]: number of content rows that have a content token at each offset -(n-1) … n-1.

    content [sequence, 2n-1]: 1 at content tokens among the first n positions, else 0. The counts are its
    autocorrelation, computed by FFT, as special tokens may be anywhere.
    """
    spectrum = torch.fft.rfft(content).abs().square()
    correlation: Tensor = torch.fft.fftshift(torch.fft.irfft(spectrum, content.shape[-1]), dim=-1)
    return correlation.round()


def _moments_at(offset: NDArray[np.intp], sums: OffsetSums, count: NDArray[np.int64]) -> Moments:
    """The moments of each head at its own offset."""
    moments, heads = Moments(count.shape), np.arange(len(count))
    moments.count, moments.total = count, sums.total[heads, offset]
    moments.total_of_squares = sums.total_of_squares[heads, offset]
    return moments


class ShareSums(OffsetSums):
    """Sums, over sequences, of the shares of rows whose maximum is at each offset, computed from counts of rows.

    The values to add have one more row after those of the heads: the `content` that `rows_with_a_target` takes. So this
    function is called once for many sequences.

    rows           [head, offset]: number of rows
    among_targets  shares of the rows that have a content token at the offset
    count_at       [1, offset]: number of sequences that have such rows
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: NDArray[np.float64] = np.zeros((0, 1))
        self.among_targets = OffsetSums()
        self.count_at: NDArray[np.float64] = np.zeros((0, 1))

    def _absorb(self, values: Tensor) -> None:
        counts, targets = values[:, :-1], rows_with_a_target(values[:, -1])[:, None]
        rows = counts.sum(dim=-1, keepdim=True)
        counts, targets = near_offsets(counts), near_offsets(targets)
        self.among_targets.add(counts / targets.clamp_min(1.0))  # without targets the count is 0
        self.among_targets.settle()
        self.count_at = add_centred(self.count_at, (targets > 0).double().sum(dim=0).cpu().numpy())
        self.rows = add_centred(self.rows, counts.sum(dim=0).cpu().numpy())
        is_defined = rows[:, 0, 0] > 0  # not in a sequence of special tokens alone
        super()._absorb((counts / rows)[is_defined])

    def merge(self, other: OffsetSums) -> None:
        assert isinstance(other, ShareSums)
        super().merge(other)
        self.rows = add_centred(self.rows, other.rows)
        self.among_targets.merge(other.among_targets)
        self.count_at = add_centred(self.count_at, other.count_at)
