"""`Attention`: the weights of one site over some sequences, and quantities that several statistics derive from them.

The sequences have the same length and no padding. Derived quantities are cached, so that statistics share them. An
`Attention` is valid only while its observer runs, since the next call overwrites the buffers of its weights. An
observer that needs something later must store a clone, or a number computed from the tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.edits import masked_score
from headscope.model.row_sums import (
    POSITIONS,
    QUARTERS,
    RowQuantities,
    RowRequest,
    Visibility,
    picture,
    segments_of,
)
from headscope.model.tokens import Tokens
from headscope.model.word_attention import Pool, WordAttention, word_attention


def _exact(like: Tensor) -> torch.dtype:
    """The dtype of sums that are subtracted from each other: float64, except on MPS, which does not support it."""
    return torch.float64 if like.device.type != "mps" else like.dtype


class Scratch:
    """Buffers that calls reuse, because allocating memory for each call would cost more time than the computation."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised contiguous tensor; the next `take` of this name returns the same memory."""
        key = self._key(name, like)
        cells = math.prod(shape)
        if key not in self._buffers or self._buffers[key].numel() < cells:
            self._buffers[key] = torch.empty(cells, dtype=like.dtype, device=like.device)
        return self._buffers[key][:cells].view(shape)

    @staticmethod
    def _key(name: str, like: Tensor) -> tuple[object, ...]:
        # A tensor made in inference mode cannot be written outside of it, so the two modes have separate buffers.
        return name, like.dtype, like.device, torch.is_inference_mode_enabled()

    def skew(self, shape: tuple[int, int, int, int], like: Tensor) -> tuple[Tensor, Tensor]:
        """Square maps whose diagonals are columns in memory, so that sums along diagonals become sums over rows.

        Returns (view, memory): write the maps to `view` [sequence, head, n, n], and sum `memory` [sequence, head, n,
        2n - 1] over its rows. Cell (i, j) of the view is cell (i, j - i + n - 1) of the memory. Cells of the memory
        that are not in the view are 0 and stay 0.
        """
        sequences, heads, length, _ = shape
        width = 2 * length - 1
        memory_shape = (sequences, heads, length, width)
        key = self._key("skewed", like)
        memory = self._buffers.get(key)
        if memory is None or memory.shape != memory_shape:
            memory = torch.zeros(memory_shape, dtype=like.dtype, device=like.device)
            self._buffers[key] = memory
        # Each row of the view begins one column further left in memory than the row before: its stride is width - 1.
        strides = (heads * length * width, length * width, width - 1, 1)
        return memory.as_strided(shape, strides, length - 1), memory


@dataclass(frozen=True)
class Layer:
    """What happens to the outputs of a site's heads after attention; with the norm lens.

    blocks    [head, out, width]: the output projection; each head's output is multiplied by its block
    residual  [sequence, query, out]: the states to which the sum over heads is added; None if unknown
    gain      [out]: the weight of the LayerNorm between this sum and the next layer; None if there is none
    """

    blocks: Tensor
    residual: Tensor | None = None
    gain: Tensor | None = None


class Attention(RowQuantities):
    """The weights of one site over some sequences of equal length, without padding. Observers are called with it.

    With a lens (`AttentionModel.watched(…, lens=…)`), `weights` holds the map of the lens.

    Attributes
    ----------
    site
        The stack and layer.
    weights
        [sequence, head, query, key]; rows sum to 1.
    query, key
        The tokens that attend, and the tokens attended to. One and the same object in self attention.
    rows, query_index
        The indices of these sequences in the batch, and of their query tokens.
    values
        [sequence, head, key, width]: the value vectors, including their bias; None if unknown.
    examples
        The numbers of the examples of these sequences, as in `Batch.indices`; empty if unknown.
    lens
        The name of the lens; `raw` for attention weights.
    raw
        The `Attention` with the attention weights; with the lens `raw` the object itself.
    row_totals
        [sequence, head, query]: with a lens that normalises rows, the sums of the rows before normalisation.
    layer
        What happens to the heads' outputs after attention, with the norm lens.
    rank
        [sequence, head]: rank of the values, with effective attention if a sequence is long enough to need it.
    gradient
        [sequence, head, query, key]: gradient of the loss with respect to the weights, with the gradient lens.

    Examples
    --------
    >>> model = headscope.load("minilm")
    >>> shapes = []
    >>> with model.watched(lambda attention: shapes.append(tuple(attention.weights.shape))):
    ...     output = model("The cat sat.")
    >>> shapes[0]  # sequence, head, query, key
    (1, 12, 6, 6)
    """

    examples: tuple[int, ...] = ()
    lens: str = "raw"
    query_index: slice | Tensor = slice(None)
    layer: Layer | None = None
    row_totals: Tensor | None = None
    gradient: Tensor | None = None
    rank: Tensor | None = None

    def __init__(
        self,
        site: Site,
        weights: Tensor,
        query: Tokens,
        key: Tokens,
        scores: Tensor | None = None,
        scratch: Scratch | None = None,
        rows: slice = slice(None),
        values: Tensor | None = None,
    ) -> None:
        self.rows, self._values = rows, values
        self.raw = self
        self.site, self.weights, self.query, self.key = site, weights, query, key
        self._scores, self._scratch = scores, scratch or Scratch()
        self._between_words: dict[Pool, WordAttention] = {}

    def through(self, lens: str, weights: Tensor) -> Attention:
        """The same call with the map of a lens in place of the weights."""
        mapped = Attention(
            self.site, weights, self.query, self.key, None, self._scratch, self.rows, self._values
        )
        mapped.lens, mapped.raw = lens, self
        mapped.examples, mapped.query_index = self.examples, self.query_index
        return mapped

    def buffer(self, name: str) -> Tensor:
        """An uninitialised tensor of the weights' shape; the next call with this name overwrites it."""
        return self._scratch.take(name, tuple(self.weights.shape), self.weights)

    @cached_property
    def values(self) -> Tensor | None:
        """[sequence, head, key, width], in the dtype of the weights (float32 if the model has half precision)."""
        return None if self._values is None else self._values.to(self.weights.dtype)

    @property
    def length(self) -> int:
        """The number of query tokens."""
        return self.weights.shape[2]

    @cached_property
    def allowed(self) -> Tensor:
        """[sequence, head, query, key], bool: the keys that a query may attend to; all keys if scores are unknown."""
        if self._scores is None:
            return torch.ones_like(self.weights, dtype=torch.bool)
        return self._scores > masked_score(self._scores.dtype)

    @cached_property
    def visible(self) -> Tensor:
        """[sequence or 1, head or 1, query, key], bool: the keys that a query may attend to.

        An axis has size 1 if all sequences or heads have the same mask, which saves time in most models. Scores are
        unknown with the gradient lens. A decoder is then assumed to be causal, and other stacks to see all keys.
        """
        scores = self.raw._scores
        if scores is None:
            everywhere = torch.ones_like(self.weights[:1, :1], dtype=torch.bool)
            return everywhere.tril() if self.site.stack == "decoder" else everywhere
        lowest = masked_score(scores.dtype)
        # All masks along the axes are the same if the smallest and the largest score are visible at the same cells.
        # This is ten times faster than comparing every cell.
        for axes in ((0, 1), (1,)):
            visible_to_all = scores.amin(dim=axes, keepdim=True) > lowest
            if torch.equal(visible_to_all, scores.amax(dim=axes, keepdim=True) > lowest):
                return visible_to_all
        return self.raw.allowed

    @cached_property
    def uniform(self) -> Tensor:
        """[sequence, head or 1, query, key]: equal weights on all keys a query may attend to."""
        visible = self.visible.to(self.weights.dtype)
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        return uniform.expand(self.weights.shape[0], -1, -1, -1)

    @cached_property
    def row_max(self) -> Tensor:
        """[sequence, head, query]: the largest weight."""
        return self.weights.amax(dim=-1)

    @cached_property
    def row_argmax(self) -> Tensor:
        """[sequence, head, query]: the first key with the largest weight."""
        return self.weights.argmax(dim=-1)

    @cached_property
    def content_row_argmax(self) -> Tensor:
        """[sequence, head, query]: the first content key with the largest weight of these."""
        return self._content_weights.argmax(dim=-1)

    @cached_property
    def content_row_max(self) -> Tensor:
        """[sequence, head, query]: the largest weight on a content key, not renormalised; below 0 if there is none."""
        return self._content_weights.amax(dim=-1)

    @cached_property
    def _content_weights(self) -> Tensor:
        """[sequence, head, query, key]: the weights at content keys; below 0 at special keys."""
        penalty = self.key.special_penalty[:, None, None, :]
        return torch.add(self.weights, penalty, out=self.buffer("content"))

    @cached_property
    def row_entropy(self) -> Tensor:
        """[sequence, head, query]: entropy in nats.

        Computed from the scores. With s_ij = score_ij - (maximum of row i), log A_ij = s_ij + log(max_j A_ij), so that
        H_i = -sum_j A_ij log A_ij = -log(max_j A_ij) - sum_j A_ij s_ij. This needs one logarithm per row instead of one
        per cell. It is ten times faster than the definition, and equal to it within 1e-6.
        """
        buffer = self.buffer("product")
        if self._scores is None:  # the definition: -sum A log A, with 0 log 0 = 0
            log = torch.log(self.weights.clamp_min(torch.finfo(self.weights.dtype).tiny))
            return -torch.mul(self.weights, log, out=buffer).sum(dim=-1)
        # Scores of forbidden keys may be -inf, and 0 * -inf is NaN. Since their weight is 0, any finite score will do.
        shifted = torch.sub(self._scores, self._scores.amax(dim=-1, keepdim=True), out=buffer)
        product = shifted.clamp_min_(-1e4).mul_(self.weights).sum(dim=-1)
        return -self.row_max.log() - product

    @cached_property
    def column_mass(self) -> Tensor:
        """[sequence, head, key]: the weight a key receives, summed over all query rows."""
        return self.weights.sum(dim=-2)

    def between_words(self, pool: Pool = "mean") -> WordAttention:
        """The attention between words instead of tokens; computed once per pooling."""
        if pool not in self._between_words:
            self._between_words[pool] = word_attention(self.weights, self.query, self.key, pool)
        return self._between_words[pool]

    @cached_property
    def quarter_mass(self) -> Tensor:
        """[sequence, head, quarter, key]: the weight a key receives from each quarter of the query rows."""
        cuts = [self.length * i // QUARTERS for i in range(QUARTERS + 1)]
        quarters = [self.weights[:, :, i:j].sum(dim=2) for i, j in pairwise(cuts)]
        return torch.stack(quarters, dim=2)

    @cached_property
    def diagonal(self) -> Tensor:
        """[sequence, head, token]: the weight of a token on itself."""
        return self.weights.diagonal(dim1=-2, dim2=-1)

    @cached_property
    def segment_mass(self) -> Tensor:
        """[sequence, head, segment, query]: mass of a row on the content tokens of each text of a pair."""
        own = segments_of(self.key, self.weights.dtype).own[:, None]
        # The matrix with few rows is on the left, because weights @ own.mT takes five times as long.
        return own @ self.weights.transpose(-1, -2)

    @cached_property
    def near_content_mass(self) -> Tensor:
        """[sequence, head]: mass on content keys at the offsets -1, 0 and 1."""
        content = self.key.content.to(self.weights.dtype)[:, None]
        total = torch.zeros_like(self.weights[:, :, 0, 0])
        for offset in (-1, 0, 1):
            if abs(offset) < self.length:
                keys = content[..., max(offset, 0) : self.length + min(offset, 0)]
                total += (self.weights.diagonal(offset, -2, -1) * keys).sum(dim=-1)
        return total

    @cached_property
    def alike_mass(self) -> Tensor:
        """[sequence, head]: the mass within one text of a pair that would be expected from the offsets alone.

        The mass of content rows on content keys at each offset, times the share of pairs of content tokens at this
        offset that are in the same text (`Segments.alike`).
        """
        n, alike = self.length, segments_of(self.key, self.weights.dtype).alike
        positions = torch.arange(n, device=alike.device)
        # The share of the offset of every cell: [sequence, query, key]
        shares = alike[:, positions[None, :] - positions[:, None] + n - 1]
        content = self.key.content.to(self.weights.dtype)
        shares = shares * content[:, None, :] * content[:, :, None]
        # float64, because such sums (about 10 to 100) are subtracted from each other
        products = (self.weights * shares[:, None]).sum(dim=-1)
        return products.sum(dim=-1, dtype=_exact(products))

    @cached_property
    def position_sums(self) -> Tensor:
        """[head, query, key]: the sum of the maps over sequences, for the first POSITIONS tokens."""
        return self.weights[:, :, :POSITIONS, :POSITIONS].sum(dim=0)

    @cached_property
    def visibility(self) -> Visibility:
        """Sums over which keys a query may attend to."""
        return Visibility.of([(0, self.visible)], self.within_one_text, self.weights.dtype)

    def rows_of(self, request: RowRequest) -> Tensor:
        """[sequence, head, row, key]: the rows at the positions of a request; 0 if the request has no position (-1)."""
        positions = request(self.query, self.site.stack)
        sequences = torch.arange(len(positions), device=positions.device)[:, None]
        rows = self.weights[sequences, :, positions.clamp_min(0)].transpose(1, 2)
        return rows.masked_fill((positions < 0)[:, None, :, None], 0.0)

    def picture_of(self, sequence: int) -> Tensor:
        """[head, SIDE, SIDE]: the map of a sequence, averaged over areas."""
        return picture(self.weights[sequence])

    @cached_property
    def offset_mass(self) -> Tensor:
        """[sequence, head, offset]: mass at each offset key - query, from -(n-1) to n-1, summed over rows."""
        view, memory = self._scratch.skew(self._square(), self.weights)
        view.copy_(self.weights)
        return memory.sum(dim=-2)

    @cached_property
    def content_argmax_offsets(self) -> Tensor:
        """[sequence, head, offset]: the number of content rows with their largest content weight at this offset.

        A row with k equal maxima counts as 1/k at each of them. Cells that equal the maximum of their row are set to 1,
        and diagonals are summed. That is much faster than torch.argmax, which is not vectorised.
        """
        # The maximum of a special row is raised so that no weight reaches it: special rows are not counted.
        row_max = self.content_row_max - self.query.special_penalty[:, None]
        view, memory = self._scratch.skew(self._square(), self.weights)
        torch.eq(self._content_weights, row_max[..., None], out=view)
        counts = memory.sum(dim=-2)
        if counts.sum().item() != self.weights.shape[1] * self.query.content_count:
            # Some row has several equal maxima.
            view /= view.sum(dim=-1, keepdim=True).clamp_min(1.0)
            counts = memory.sum(dim=-2)
        return counts

    def _square(self) -> tuple[int, int, int, int]:
        """The shape of the weights, which must be those of a text with itself."""
        assert self.within_one_text, "offsets compare positions within one text"
        sequences, heads, length, _ = self.weights.shape
        return sequences, heads, length, length
