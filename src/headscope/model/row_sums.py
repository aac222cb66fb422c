"""Sums over the rows of attention maps, from which most statistics follow without the maps themselves.

`RowSums` holds them for one site and one batch; sequences may differ in length. An `Attention` has the entire maps of
sequences of equal length, and the same quantities under the same names. A statistic that uses only these quantities
works with both classes. Positions are counted from the first real token of a sequence. Beyond its last token every
quantity is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.tokens import Tokens

QUARTERS = 4
POSITIONS = 128  # number of absolute positions of the mean map
SIDE = 64  # height and width of the small picture of a map
NEAREST = (-1, 0, 1)  # offsets key - query

# A function of the tokens and the stack that returns the positions [sequence, row] of rows; -1: no row
RowRequest = Callable[[Tokens, str], Tensor]


@dataclass(frozen=True)
class Wanted:
    """What statistics need of the maps of a batch.

    quantities  names of attributes of `RowSums`
    requests    which rows are needed as they are
    pictured    indices of the batch's sequences whose maps are needed as small pictures
    located     indices of the batch's sequences whose largest weights are needed with their positions
    """

    quantities: frozenset[str] = frozenset()
    requests: tuple[RowRequest, ...] = ()
    pictured: tuple[int, ...] = ()
    located: tuple[int, ...] = ()

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(
            self.quantities | other.quantities,
            tuple(dict.fromkeys(self.requests + other.requests)),
            tuple(sorted({*self.pictured, *other.pictured})),
            tuple(sorted({*self.located, *other.located})),
        )


@dataclass
class Visibility:
    """Which keys a query may attend to, in sums; and the same sums of uniform attention over these keys.

    An axis has size 1 if all its sequences or heads agree.

    key_counts       [sequence or 1, head or 1, query]: number of keys a row sees; 0 at padding
    row_counts       [sequence or 1, head or 1, key]: number of rows that see a key
    own              [sequence or 1, head or 1, token]: whether a row sees its own token; within one text
    uniform_columns  [sequence or 1, head or 1, key]: mass on each key under uniform attention
    uniform_nearest  [sequence or 1, head or 1, 3]: mass at the offsets NEAREST, within one text
    uniform_own      [sequence or 1, head or 1, token]: weight of a token on itself, within one text
    """

    key_counts: Tensor
    row_counts: Tensor
    own: Tensor
    uniform_columns: Tensor
    uniform_nearest: Tensor
    uniform_own: Tensor

    @classmethod
    def of(
        cls, strips: Iterable[tuple[int, Tensor]], is_one_text: bool, dtype: torch.dtype
    ) -> Visibility:
        """From strips of rows: (first row, visible [sequence or 1, head or 1, row, key])."""
        counts, own, uniform_own = [], [], []
        columns = rows = nearest = zeros = None
        for start, visible in strips:
            counts.append(visible.sum(dim=-1))
            uniform = visible.to(dtype) / counts[-1].clamp_min(1)[..., None]
            columns = uniform.sum(dim=-2) if columns is None else columns + uniform.sum(dim=-2)
            seen = visible.sum(dim=-2)
            rows = seen if rows is None else rows + seen
            zeros = torch.zeros_like(uniform[..., 0, 0])
            if is_one_text:
                # Clone, because a view would keep the memory of the entire strip.
                own.append(visible.diagonal(offset=start, dim1=-2, dim2=-1).clone())
                uniform_own.append(uniform.diagonal(offset=start, dim1=-2, dim2=-1).clone())
                masses = torch.stack(
                    [
                        uniform.diagonal(offset=start + d, dim1=-2, dim2=-1).sum(dim=-1)
                        if -visible.shape[-2] < start + d < visible.shape[-1]
                        else zeros
                        for d in NEAREST
                    ],
                    dim=-1,
                )
                nearest = masses if nearest is None else nearest + masses
        assert columns is not None
        assert rows is not None
        assert zeros is not None
        return cls(
            torch.cat(counts, dim=-1),
            rows,
            torch.cat(own, dim=-1) if own else torch.zeros_like(rows, dtype=torch.bool),
            columns,
            zeros[..., None].expand(*zeros.shape, len(NEAREST)) if nearest is None else nearest,
            torch.cat(uniform_own, dim=-1) if uniform_own else torch.zeros_like(columns),
        )


class RowQuantities:
    """What `Attention` and `RowSums` have in common.

    site      the call's site
    query     the tokens of the queries
    key       the tokens of the keys; the same object within one text
    rows      which sequences of the batch these are
    lens      the name of the lens
    examples  the numbers of the examples
    """

    site: Site
    query: Tokens
    key: Tokens
    rows: slice = slice(None)
    lens: str = "raw"
    examples: tuple[int, ...] = ()

    @cached_property
    def column_mass(self) -> Tensor:
        """[sequence, head, key]: the weight a key receives, summed over all query rows."""
        raise NotImplementedError

    @property
    def within_one_text(self) -> bool:
        """Whether queries and keys are the same tokens, so that positions can be compared."""
        return self.query is self.key

    @cached_property
    def lengths(self) -> Tensor:
        """[sequence]: the number of query tokens, in float64."""
        return self.query.real.sum(dim=-1).double()

    @cached_property
    def key_lengths(self) -> Tensor:
        """[sequence]: the number of key tokens, in float64."""
        return self.key.real.sum(dim=-1).double()

    @cached_property
    def class_mass(self) -> Tensor:
        """[sequence, head, class]: mass on each class of key tokens (CLASSES), averaged over the query rows."""
        sums = torch.bmm(self.column_mass, self.key.classes.to(self.column_mass.dtype))
        return sums / self.lengths.to(sums.dtype)[:, None, None]

    def row_means(self, values: Tensor, rows: slice) -> Tensor:
        """[sequence, head, name]: values [sequence, head, query] averaged over the rows of `Tokens.averages[rows]`."""
        return torch.bmm(values, self.query.averages[..., rows].to(values.dtype))


@dataclass
class RowSums(RowQuantities):
    """The sums of all heads of a site over a batch.

    row_max, row_entropy     [sequence, head, query]: largest weight and entropy in nats of a row
    content_row_max          [sequence, head, query]: largest weight on a content key; below 0 if there is none
    row_argmax, content_row_argmax
                             [sequence, head, query]: the first key with that weight, in `located` sequences
    quarter_mass             [sequence, head, quarter, key]: weight a key receives from each quarter of the rows
    offset_mass              [sequence, head, offset]: mass at each offset key - query, -(T-1) … T-1
    content_argmax_offsets   [sequence, head, offset]: number of content rows with their largest content weight there
    diagonal                 [sequence, head, token]: weight of a token on itself
    segment_mass             [sequence, head, segment, query]: mass of a row on the content of each text of a pair
    near_content_mass        [sequence, head]: mass on content keys at the offsets -1, 0 and 1
    alike_mass               [sequence, head]: mass of content rows on content keys, times `Segments.alike`
    position_sums            [head, query, key]: sum of the maps over sequences, first POSITIONS tokens
    """

    site: Site
    query: Tokens
    key: Tokens
    visibility: Visibility
    row_max: Tensor
    content_row_max: Tensor
    row_entropy: Tensor
    quarter_mass: Tensor
    offset_mass: Tensor
    content_argmax_offsets: Tensor
    diagonal: Tensor
    segment_mass: Tensor
    near_content_mass: Tensor
    alike_mass: Tensor
    position_sums: Tensor
    row_argmax: Tensor
    content_row_argmax: Tensor
    examples: tuple[int, ...] = ()
    _rows: dict[RowRequest, Tensor] = field(default_factory=dict)
    _pictures: dict[int, Tensor] = field(default_factory=dict)

    @cached_property
    def column_mass(self) -> Tensor:
        """[sequence, head, key]: the weight a key receives, summed over all query rows."""
        return self.quarter_mass.sum(dim=2)

    def rows_of(self, request: RowRequest) -> Tensor:
        """[sequence, head, row, key]: the rows at the positions of a request; 0 where it has none."""
        return self._rows[request]

    def picture_of(self, sequence: int) -> Tensor:
        """[head, SIDE, SIDE]: the map of a sequence, averaged over areas."""
        return self._pictures[sequence]


@dataclass(frozen=True)
class Segments:
    """The content tokens of the two texts of a pair.

    own        [sequence, segment, token]: 1 at content tokens of the first, of the second text
    alike      [sequence, offset]: share of the pairs of content tokens at an offset that are within one segment
    is_pair    [sequence]: whether both texts have content
    """

    own: Tensor
    alike: Tensor
    is_pair: Tensor


@lru_cache(maxsize=64)
def segments_of(tokens: Tokens, dtype: torch.dtype) -> Segments:
    """The segments of some sequences, computed once for all layers."""
    segments = torch.zeros_like(tokens.real) if tokens.segments is None else tokens.segments
    own = torch.stack([tokens.content & (segments == 0), tokens.content & (segments > 0)], dim=1)
    within = _pairs(own.double()).sum(dim=1)
    every = _pairs(own.any(dim=1, keepdim=True).double()).sum(dim=1)
    alike = within / every.clamp_min(1.0)
    return Segments(own.to(dtype), alike.to(dtype), own.any(dim=-1).all(dim=-1))


def _pairs(mask: Tensor) -> Tensor:
    """[…, offset]: number of pairs of tokens at each offset -(n-1) … n-1 that are both 1 in mask […, token].

    Computed as an autocorrelation by FFT, because special tokens may be anywhere in a text.
    """
    width = 2 * mask.shape[-1] - 1
    spectrum = torch.fft.rfft(mask, n=width).abs().square()
    pairs: Tensor = torch.fft.fftshift(torch.fft.irfft(spectrum, width), dim=-1).round()
    return pairs


def picture(weights: Tensor) -> Tensor:
    """[…, SIDE, SIDE]: maps […, query, key] averaged over areas."""
    rows, keys = (area_means(n, weights.dtype).to(weights.device) for n in weights.shape[-2:])
    return rows @ weights @ keys.T


@lru_cache(maxsize=64)
def area_means(length: int, dtype: torch.dtype) -> Tensor:
    """[SIDE, length]: the matrix that averages positions over areas, as `interpolate(mode="area")` does."""
    result = torch.zeros(SIDE, length, dtype=dtype)
    for i in range(SIDE):
        start, stop = i * length // SIDE, -(-(i + 1) * length // SIDE)
        result[i, start:stop] = 1 / (stop - start)
    return result
