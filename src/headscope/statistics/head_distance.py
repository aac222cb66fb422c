"""Which heads have similar attention?

The distance is the Jensen-Shannon divergence in nats between the rows of every two heads of a stack, also of different
layers. 0 means the same attention, ln 2 that no token gets attention from both. It is averaged over a few sampled query
rows of each sequence first and over sequences second. (Clark et al. 2019 describe an average, but their released code
sums over all rows.) The sampled rows depend only on the sequence's tokens and the seed, so they are the same for every
head, order and batch size; `rows=None` takes every row. In a decoder, rows with fewer than 8 keys are left out, because
all heads are similar if there are few tokens to attend to.

Heads with most attention on [CLS] or [SEP] are similar for that reason alone. Therefore a second matrix, `js-content`,
is computed without special tokens: special keys are removed and the rows renormalised. Rows of special tokens are left
out, and also rows in which one of the two heads has less than 1 % of its attention on other keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.row_sums import Wanted
from headscope.model.tokens import Tokens
from headscope.statistics.base import Buffered, Definition, Quantities
from headscope.statistics.resampling import fingerprint
from headscope.tables import Moments, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 4  # rows per sequence; rows of one text are similar, so a few rows of many texts suffice
FEWEST_KEYS = 8  # fewest keys of a row that is compared, in a decoder
LEAST_MASS = 0.01  # mass that must be left in a row after its special keys are removed
# Cells per block: the sums and logarithms of a block fit into the processor's cache.
BLOCK_CELLS = 400_000


class HeadDistance(Buffered):
    definitions = {
        "twin-distance": Definition(
            "nats",
            "Divergence from the most similar head",
            "Jensen–Shannon divergence between the attention of this head and of the head most similar to it.",
        )
    }

    quantities: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        names: tuple[str, ...] | None = None,
        *,
        rows: int | None = ROWS,
        content: bool = True,
        seed: int = 0,
    ) -> None:
        """rows: sampled rows per sequence, None for all; content: also compute `js-content`, which doubles the cost."""
        super().__init__(names)
        if rows is not None and rows < 1:
            raise HeadscopeError(f"must be at least 1, or None for all, got {rows}", where="rows")
        self.rows, self.content, self.seed = rows, content, seed

    @property
    def _request(self) -> SampledRows:
        return SampledRows(self.rows, self.seed)

    def wanted(self, examples: Sequence[int]) -> Wanted:
        return Wanted(requests=(self._request,))

    def update(self, attention: Quantities) -> None:
        stack = attention.site.stack
        position = attention.site.layer, attention.rows.start or 0
        if stack in self._pending and position <= self._pending[stack].position:
            # Within a batch, layers and the sequences of each layer come in order: a step back means a new batch.
            self._settle(stack)
        sample = self._pending.setdefault(stack, _Sample())
        positions = self._request(attention.query, stack)
        sample.add(attention, positions, attention.rows_of(self._request))
        sample.position = position

    def _settle(self, stack: str) -> None:
        sample = self._pending.pop(stack)
        weights, of_sequences = sample.weights(), sample.of_sequences
        every_row = torch.ones(weights.shape[:2], dtype=torch.bool)
        values = {"js": _means(weights, every_row, of_sequences)}
        if self.content:
            content, is_counted = sample.without_special(weights)
            values["js-content"] = _means(content, is_counted, of_sequences)
        distances = Distances(sample.heads())
        for name, of_pairs in values.items():
            distances.moments[name] = Moments(of_pairs.shape[1:])
            distances.moments[name].add(of_pairs)
        self._sums.setdefault(stack, Distances(distances.heads)).merge(distances, stack)

    def merge(self, other: Self) -> Self:
        merged = self._settle_all()
        for stack, sums in other._settle_all().items():
            merged.setdefault(stack, Distances(sums.heads)).merge(sums, stack)
        return self

    def table(self) -> list[Row]:
        if "twin-distance" not in self.names:
            return []
        return [
            row for _, sums in sorted(self._settle_all().items()) for row in sums.nearest_heads()
        ]

    def maps(self) -> dict[str, NDArray[Any]]:
        """js/STACK, js-content/STACK: the mean divergence [head, head], heads in the order of layer and head.

        NaN for a pair without a row in which both can be compared.
        """
        return {
            f"{name}/{stack}": sums.matrix(name)
            for stack, sums in sorted(self._settle_all().items())
            for name in sums.moments
        }


class Distances:
    """Sums over sequences for every pair of heads of one stack, ordered (0, 1), (0, 2) … (1, 2) …; mergeable."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self.moments: dict[str, Moments] = {}

    def merge(self, other: Distances, stack: str) -> None:
        if other.heads != self.heads:
            layers, other_layers = ({head.layer for head in d.heads} for d in (self, other))
            raise HeadscopeError(
                f"{stack} had {len(self.heads)} heads in {len(layers)} layers before, and now "
                f"{len(other.heads)} in {len(other_layers)}",
                expected="whole forward passes of one model",
            )
        for name, moments in other.moments.items():
            self.moments.setdefault(name, Moments(moments.total.shape)).merge(moments)

    def matrix(self, name: str) -> NDArray[np.float64]:
        heads = len(self.heads)
        result = np.zeros((heads, heads))
        means = np.maximum(self.moments[name].mean(), 0.0)  # rounding may give -1e-8
        result[np.triu_indices(heads, 1)] = means
        return result + result.T

    def nearest_heads(self) -> list[Row]:
        """Rows of `twin-distance`; a head that cannot be compared with any other has no row."""
        matrix, moments = self.matrix("js"), self.moments["js"]
        np.fill_diagonal(matrix, np.nan)
        low, high = moments.interval()
        rows = []
        for i, head in enumerate(self.heads):
            if np.isfinite(matrix[i]).any():
                j = int(np.nanargmin(matrix[i]))
                pair = _pair(min(i, j), max(i, j), len(self.heads))
                numbers = float(matrix[i, j]), float(low[pair]), float(high[pair])
                rows.append(Row.of(head, "twin-distance", *numbers, int(moments.count[pair])))
        return rows


@dataclass
class _Sample:
    """The sampled rows of one stack in one batch, for the layers that have run so far.

    position  layer and first sequence of the last chunk that was added
    layers    by site, chunks [head, row, key] of the sampled rows of all sequences
    counts    number of rows of each sequence
    content   [row]: whether the query is a content token
    special   [row, key]: whether a key is special
    """

    position: tuple[int, int] = (0, 0)
    layers: dict[Site, list[Tensor]] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    content: list[Tensor] = field(default_factory=list)
    special: list[Tensor] = field(default_factory=list)

    def add(self, attention: Quantities, positions: Tensor, weights: Tensor) -> None:
        """Add weights [sequence, head, row, key] of the rows at these positions [sequence, row]; -1 means no row."""
        is_row = positions >= 0
        # [sequence and row, head, key]
        weights = weights.transpose(1, 2)[is_row]
        weights = weights.cpu() if weights.dtype.itemsize >= 4 else weights.cpu().float()
        self.layers.setdefault(attention.site, []).append(weights.transpose(0, 1))
        if len(self.layers) == 1:  # once is enough: all layers have the same tokens
            counts = is_row.sum(dim=1)
            self.counts += counts.tolist()
            content = attention.query.content.take_along_dim(positions.clamp_min(0), dim=1)
            self.content.append(content[is_row].cpu())
            self.special.append(attention.key.special.repeat_interleave(counts, dim=0).cpu())

    def heads(self) -> list[Head]:
        return [
            head
            for site, pieces in sorted(self.layers.items())
            for head in site.heads(pieces[0].shape[0])
        ]

    def weights(self) -> Tensor:
        """[head, row, key] of all layers. Shorter rows are padded with zeros, which do not change a divergence."""
        layers = [pieces for _, pieces in sorted(self.layers.items())]
        longest = max(special.shape[1] for special in self.special)
        shape = len(self.heads()), sum(self.counts), longest
        result = layers[0][0].new_zeros(shape)
        first = 0
        for pieces in layers:
            start, width = 0, pieces[0].shape[0]
            for piece in pieces:
                stop = start + piece.shape[1]
                result[first : first + width, start:stop, : piece.shape[2]] = piece
                start = stop
            first += width
        return result

    def without_special(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rows renormalised over content keys [head, row, key], and whether each of them counts [head, row]."""
        special = torch.zeros(weights.shape[1:], dtype=torch.bool)
        start = 0
        for piece in self.special:
            special[start : start + len(piece), : piece.shape[1]] = piece
            start += len(piece)
        content = weights.masked_fill(special, 0.0)
        mass = content.sum(dim=-1)
        is_counted = (mass >= LEAST_MASS) & torch.cat(self.content)
        return content / mass.clamp_min(LEAST_MASS)[..., None], is_counted

    @property
    def of_sequences(self) -> Tensor:
        """[row, sequence]: 1 if the row belongs to the sequence."""
        numbers = torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))
        return (numbers[:, None] == torch.arange(len(self.counts))).double()


@dataclass(frozen=True)
class SampledRows:
    """Selects the query rows to compare: at most `rows` per sequence, or all if None."""

    rows: int | None
    seed: int

    def __call__(self, query: Tokens, stack: str) -> Tensor:
        """[sequence, row]: sorted positions, -1 for none."""
        first = FEWEST_KEYS - 1 if stack == "decoder" else 0
        lengths = query.real.sum(dim=1).tolist()
        longest = max(max(lengths) - first, 0)
        width = longest if self.rows is None else min(self.rows, longest)
        positions = np.full((len(lengths), width), -1)
        for i, length in enumerate(lengths):
            of_sequence = self._sample(query, i, max(length - first, 0))
            positions[i, : len(of_sequence)] = of_sequence + first
        return torch.from_numpy(positions).to(query.real.device)

    def _sample(self, query: Tokens, sequence: int, length: int) -> NDArray[np.int64]:
        """Sorted indices of the sampled rows, among the rows that can be compared."""
        if self.rows is None or length <= self.rows:
            return np.arange(length)
        text = ""
        if query.ids is not None:
            text = str(query.ids[sequence][query.real[sequence]].tolist())
        keys = np.random.Philox(key=fingerprint(text, self.seed)).random_raw(length)
        return np.sort(np.argsort(keys, kind="stable")[: self.rows])


def divergences(weights: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """The divergence between head i and some later heads in every row: (i, slice of heads, [head, row] in float64).

    weights [head, row, key], in the dtype to compute with. With s = p + q,
    JS = ln 2 + (sum p ln p + sum q ln q - sum s ln s) / 2. This takes one logarithm per key and pair of heads, instead
    of four for the two Kullback-Leibler terms of the usual formula.
    """
    heads, rows, keys = weights.shape
    weights = weights + torch.finfo(weights.dtype).tiny  # so that 0 ln 0 is 0
    own = torch.linalg.vecdot(weights, weights.log()).double()
    block = max(BLOCK_CELLS // max(rows * keys, 1), 1)
    sums, logs = (weights.new_empty(min(block, heads), rows, keys) for _ in range(2))
    for i in range(heads - 1):
        for start in range(i + 1, heads, block):
            later = slice(start, min(start + block, heads))
            size = later.stop - later.start
            both = torch.add(weights[later], weights[i], out=sums[:size])
            mixed = torch.linalg.vecdot(both, torch.log(both, out=logs[:size])).double()
            yield i, later, math.log(2) + (own[i] + own[later] - mixed) / 2


def _means(weights: Tensor, is_counted: Tensor, of_sequences: Tensor) -> NDArray[np.float64]:
    """[sequence, pair]: mean divergence over the rows of a sequence that count for both heads; NaN without such rows.

    weights [head, row, key]; is_counted [head, row]; of_sequences [row, sequence].
    """
    heads = len(weights)
    result = np.full((of_sequences.shape[1], heads * (heads - 1) // 2), np.nan)
    for i, later, of_rows in divergences(weights):
        both = (is_counted[later] & is_counted[i]).double()
        pairs = slice(_pair(i, later.start, heads), _pair(i, later.stop, heads))
        result[:, pairs] = ((of_rows * both) @ of_sequences / (both @ of_sequences)).T.numpy()
    return result


def _pair(i: int, j: int, heads: int) -> int:
    """Index of the pair i < j in the order (0, 1), (0, 2) … (1, 2) …"""
    return i * heads - i * (i + 1) // 2 + j - i - 1
