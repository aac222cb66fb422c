"""What one site did to a few sequences: the weights, and what several statistics need of them, computed once.

An `Attention` holds sequences of one length without padding. It is valid only while its observer runs: the
weights live in buffers that the next call overwrites, so keep numbers, not tensors of it (or clone them).
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.tokens import Tokens


class Scratch:
    """Buffers that are used again and again: fresh memory at each call costs more than the arithmetic in it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised contiguous tensor; the next `take` of this name gives the same memory."""
        key = self._key(name, like)
        cells = math.prod(shape)
        if key not in self._buffers or self._buffers[key].numel() < cells:
            self._buffers[key] = torch.empty(cells, dtype=like.dtype, device=like.device)
        return self._buffers[key][:cells].view(shape)

    @staticmethod
    def _key(name: str, like: Tensor) -> tuple[object, ...]:
        # A tensor made in inference mode cannot be written outside it, so the two do not share.
        return name, like.dtype, like.device, torch.is_inference_mode_enabled()

    def skewed(self, shape: tuple[int, int, int, int], like: Tensor) -> tuple[Tensor, Tensor]:
        """A square map written askew: (view to write [S, H, n, n], the memory [S, H, n, 2n-1] to sum over rows).

        Row i is shifted so that cell (i, j) lands in column j - i + n - 1: a diagonal becomes a column. Cells
        that the view does not reach are 0 and stay so.
        """
        sequences, heads, length, _ = shape
        width = 2 * length - 1
        whole = (sequences, heads, length, width)
        key = self._key("skewed", like)
        memory = self._buffers.get(key)
        if memory is None or memory.shape != whole:
            memory = self._buffers[key] = torch.zeros(whole, dtype=like.dtype, device=like.device)
        strides = (heads * length * width, length * width, width - 1, 1)
        return memory.as_strided(shape, strides, length - 1), memory


class Attention:
    """One site's weights over some sequences of equal length, padding removed.

    site     where
    weights  [sequence, head, query, key]; rows sum to 1
    query    the tokens that look; key: the tokens looked at. The same object where a text attends to itself
    scores   what the softmax was taken of, where known (used up by `row_entropy`)
    rows     which sequences of the batch these are: `batch.indices[attention.rows]` are their examples
    """

    def __init__(
        self,
        site: Site,
        weights: Tensor,
        query: Tokens,
        key: Tokens,
        scores: Tensor | None = None,
        scratch: Scratch | None = None,
        rows: slice = slice(None),
    ) -> None:
        self.rows = rows
        self.site, self.weights, self.query, self.key = site, weights, query, key
        self._scores, self._scratch = scores, scratch or Scratch()

    @property
    def within_one_text(self) -> bool:
        """Whether queries and keys are the same tokens, so that positions can be compared."""
        return self.query is self.key

    @property
    def length(self) -> int:
        """The number of query tokens."""
        return self.weights.shape[2]

    @cached_property
    def row_max(self) -> Tensor:
        """[sequence, head, query]: the largest weight."""
        return self.weights.amax(dim=-1)

    @cached_property
    def content_row_max(self) -> Tensor:
        """[sequence, head, query]: the largest weight on a content key (not renormalised); -1 if there is none."""
        return self._content_weights.amax(dim=-1)

    @cached_property
    def _content_weights(self) -> Tensor:
        """The weights in a buffer of their own, -1 at special keys; `content_argmax_offsets` uses it up."""
        weights = self._scratch.take("content", tuple(self.weights.shape), self.weights).copy_(self.weights)
        if self.key.special_positions is None:
            return weights.masked_fill_(self.key.special[:, None, None, :], -1.0)
        for position in self.key.special_positions:
            weights[..., position] = -1.0
        return weights

    @cached_property
    def row_entropy(self) -> Tensor:
        """[sequence, head, query]: entropy in nats.

        With s' = score - row maximum: H = -log(max weight) - sum_j A_ij s'_ij, one logarithm a row instead of
        one a cell, and 14 times faster; agrees with the textbook form to 5e-7.
        """
        scratch = self._scratch.take("product", tuple(self.weights.shape), self.weights)
        if self._scores is None:  # only weights are known: -sum A log A, with 0 log 0 = 0
            log = torch.log(self.weights.clamp_min(torch.finfo(self.weights.dtype).tiny))
            return -torch.mul(self.weights, log, out=scratch).sum(dim=-1)
        self._scores.sub_(self._scores.amax(dim=-1, keepdim=True))
        product = torch.mul(self.weights, self._scores, out=scratch).sum(dim=-1)
        self._scores = None
        return -self.row_max.log() - product

    @cached_property
    def column_mass(self) -> Tensor:
        """[sequence, head, key]: the weight a key receives, summed over all query rows."""
        return self.weights.sum(dim=-2)

    @cached_property
    def class_mass(self) -> Tensor:
        """[sequence, head, class]: mass on each class of key tokens (CLASSES), averaged over the query rows."""
        classes = self.key.classes[:, None].to(self.weights.dtype)
        return (self.column_mass[:, :, None] @ classes)[:, :, 0] / self.length

    @cached_property
    def offset_mass(self) -> Tensor:
        """[sequence, head, offset]: mass at each offset key - query, -(n-1) … n-1, summed over the rows."""
        return self._by_offset(self.weights)

    @cached_property
    def content_argmax_offsets(self) -> Tensor:
        """[sequence, head, offset]: how many content rows have their largest content weight at this offset.

        Equal maxima share the row's credit. No index is taken (not vectorised, the slowest step there was):
        the sign of weight - maximum is 0 at the maximum and -1 elsewhere, and its diagonals are summed.
        """
        top = self.content_row_max.masked_fill(~self.query.content[:, None], 2.0)  # other rows: never reached
        signs = self._content_weights.sub_(top[..., None]).sign_()
        del self.__dict__["_content_weights"]
        counts = self._by_offset(signs).add_(self.length - self.query.distances)  # so many cells has a diagonal
        if counts.sum().item() != self.weights.shape[1] * self.query.content_count:
            return self._content_argmax_offsets_with_ties(top)
        return counts

    def _content_argmax_offsets_with_ties(self, top: Tensor) -> Tensor:
        credit = (self._content_weights == top[..., None]).to(self.weights.dtype)
        return self._by_offset(credit / credit.sum(dim=-1, keepdim=True).clamp_min(1.0))

    def _by_offset(self, cells: Tensor) -> Tensor:
        """[sequence, head, offset]: cells [sequence, head, query, key] summed along their diagonals."""
        view, memory = self._scratch.skewed(self._square(), cells)
        view.copy_(cells)
        return memory.sum(dim=-2)

    def _square(self) -> tuple[int, int, int, int]:
        assert self.within_one_text, "offsets compare positions within one text"
        sequences, heads, length, _ = self.weights.shape
        return sequences, heads, length, length
