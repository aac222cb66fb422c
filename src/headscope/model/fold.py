"""Attention of a whole batch with the sums of its rows, without keeping any map: the fast path of the seam.

Scores of a few sequences at a time are written into a buffer that stays in the cache; the compiled pass
(`row_kernel`) turns them into weights in place and adds them to the sums; then they are multiplied by the values.
Long sequences come in strips of query rows, so that memory grows with the length and not with its square.

It needs numba, a CPU, float32, no gradients, and real tokens without gaps; anything else takes the path of `kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headscope.heads import Site
from headscope.model.edits import masked_score
from headscope.model.row_sums import (
    POSITIONS,
    QUARTERS,
    RowSums,
    Visibility,
    Wanted,
    area_means,
    segments_of,
)
from headscope.model.tokens import Layout, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headscope.model.attention import Scratch
    from headscope.model.kernels import Call

GROUP_CELLS = 400_000  # weights of several short sequences at a time
STRIP_CELLS = 4_000_000  # weights at a time of one long sequence: 16 MB


@cache
def has_numba() -> bool:
    """Whether the compiled pass can be used."""
    return find_spec("numba") is not None


@dataclass(frozen=True)
class Span:
    """The real tokens of each sequence of one side: first position and number, int64 [sequence]."""

    first: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, real: Tensor) -> Span | None:
        """None if there is padding between real tokens."""
        first, count = real.int().argmax(dim=1), real.sum(dim=1)
        positions = torch.arange(real.shape[1])
        last = (first + count)[:, None]
        if not torch.equal(real, (positions >= first[:, None]) & (positions < last)):
            return None
        return cls(first.numpy(), count.numpy())

    def as_array(self, rows: slice, shift: int = 0) -> NDArray[np.int64]:
        return np.stack([self.first[rows] - shift, self.count[rows]])

    def compact(self, tokens: Tokens) -> Tokens:
        """The tokens with each sequence's first real one in front, padding at the end."""
        if not self.first.any():
            return tokens.select(slice(None), slice(0, int(self.count.max())))
        index = torch.from_numpy(self.first)[:, None] + torch.arange(int(self.count.max()))
        index = index.clamp_max(tokens.length - 1)
        is_real = torch.arange(index.shape[1]) < torch.from_numpy(self.count)[:, None]

        def gather(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.gather(1, index)

        return Tokens(
            is_real, gather(tokens.ids), gather(tokens.words), gather(tokens.segments), tokens.marks
        )


class FoldPlan:
    """The data that the compiled pass needs about the tokens of a batch; computed once for all layers of a stack."""

    def __init__(self, query: Tokens, key: Tokens, spans: tuple[Span, Span]) -> None:
        self.query_span, self.key_span = spans
        self.query = self.query_span.compact(query)
        self.key = self.query if key is query else self.key_span.compact(key)
        self._visibility: list[tuple[Tensor | None, bool, Visibility]] = []
        self._requests: dict[Any, NDArray[np.int64]] = {}

    @classmethod
    def of(cls, query: Tokens, key: Tokens) -> FoldPlan | None:
        query_span = Span.of(query.real)
        key_span = query_span if key is query else Span.of(key.real)
        if query_span is None or key_span is None:
            return None
        return cls(query, key, (query_span, key_span))

    @property
    def is_one_text(self) -> bool:
        return self.query is self.key

    @cached_property
    def tokens(self) -> tuple[NDArray[Any], ...]:
        """The arrays of `row_kernel.fold`."""
        special = self.key.special.numpy()
        segments = segments_of(self.key, torch.float32)
        return (
            np.where(special, np.float32(-np.inf), np.float32(0.0)),
            self.key.content.float().numpy(),
            self.query.content.numpy(),
            segments.own.numpy(),
            segments.alike.numpy(),
        )

    @cached_property
    def has_pairs(self) -> bool:
        return self.is_one_text and bool(segments_of(self.key, torch.float32).is_pair.any())

    def wanted_rows(self, wanted: Wanted, stack: str) -> NDArray[np.int64]:
        """[sequence, row]: the rows of all requests next to each other."""
        key = wanted.requests, stack
        if key not in self._requests:
            pieces = [request(self.query, stack).numpy() for request in wanted.requests]
            empty = np.zeros((len(self.query.real), 0), np.int64)
            self._requests[key] = np.concatenate([empty, *pieces], axis=1)
        return self._requests[key]

    def groups(self, heads: int, queries: int) -> Iterator[slice]:
        """Neighbouring sequences of at most GROUP_CELLS weights together."""
        start = 0
        first, last = self.key_span.first, self.key_span.first + self.key_span.count
        for stop in range(1, len(first) + 1):
            width = int(last[start:stop].max() - first[start:stop].min())
            if stop - start > 1 and (stop - start) * heads * queries * width > GROUP_CELLS:
                yield slice(start, stop - 1)
                start = stop - 1
        yield slice(start, len(first))

    def visibility(self, mask: Tensor | None, is_causal: bool) -> Visibility:
        """Which keys are seen, for the mask of a call; layers with the same mask share it."""
        for other, causal, visibility in self._visibility:
            if other is mask and causal == is_causal:
                return visibility
        strips = self._strips(mask, is_causal)
        visibility = Visibility.of(strips, self.is_one_text, torch.float32)
        self._visibility.append((mask, is_causal, visibility))
        return visibility

    def _strips(self, mask: Tensor | None, is_causal: bool) -> Iterator[tuple[int, Tensor]]:
        """Strips of neighbouring rows of the compact tokens: the first row, and which keys the rows may attend to.

        The latter is [sequence or 1, head or 1, row, key], bool. Strips limit the memory that is needed at a time.
        """
        queries, keys = self.query.length, self.key.length
        rows = max(1, STRIP_CELLS // (keys * len(self.query.real)))
        positions = torch.arange(keys)
        for start in range(0, queries, rows):
            stop = min(start + rows, queries)
            visible = self.key.real[:, None, None, :] & self.query.real[:, None, start:stop, None]
            if is_causal:
                visible = visible & (positions <= torch.arange(start, stop)[:, None])
            if mask is not None:
                visible = visible & self._of_mask(mask, start, stop)
            yield start, visible

    def _of_mask(self, mask: Tensor, start: int, stop: int) -> Tensor:
        """[sequence, head or 1, row, key], bool: the compact cells that a mask allows."""
        allowed = mask if mask.dtype == torch.bool else mask > masked_score(mask.dtype)
        parts = []
        for s, (first_query, first_key) in enumerate(
            zip(self.query_span.first, self.key_span.first, strict=True)
        ):
            of_sequence = allowed[s if allowed.shape[0] > 1 else 0]
            if of_sequence.shape[-2] > 1:
                of_sequence = of_sequence[:, first_query + start : first_query + stop]
            of_sequence = of_sequence[:, :, first_key : first_key + self.key.length]
            result = of_sequence.new_zeros(len(of_sequence), stop - start, self.key.length)
            result[:, : of_sequence.shape[1], : of_sequence.shape[2]] = of_sequence
            if of_sequence.shape[1] == 1:
                result[:] = result[:, :1]
            parts.append(result)
        return torch.stack(parts)


def plan_fold(layout: Layout, stack: str) -> FoldPlan | None:
    """The plan of a stack, made once for a batch; None if its tokens do not allow one."""
    sides = layout.sides(stack)
    assert sides is not None, stack
    if stack not in layout.plans:
        layout.plans[stack] = FoldPlan.of(*sides)
    return layout.plans[stack]


def attend_and_fold(
    call: Call, site: Site, plan: FoldPlan, wanted: Wanted, is_plain: bool, scratch: Scratch
) -> tuple[Tensor, RowSums]:
    """The outputs of the heads [batch, query, head, width], and the sums of the rows.

    is_plain  whether the mask hides only padding keys
    """
    batch, heads, queries, _ = call.shape
    output = call.query.new_empty(batch, queries, heads, call.value.shape[-1])
    sums = _Sums(plan, site, heads, wanted)
    masks = [] if is_plain or call.mask is None else [call.mask]
    for group in plan.groups(heads, queries):
        first = int(plan.key_span.first[group].min())
        last = int((plan.key_span.first[group] + plan.key_span.count[group]).max())
        count = group.stop - group.start
        rows = queries
        if count == 1 and heads * queries * (last - first) > STRIP_CELLS:
            rows = max(32, STRIP_CELLS // (heads * (last - first)))
            # The largest strip first: a buffer that grows from strip to strip would fragment the heap.
            scratch.take("folded", (1, heads, rows, last - first), call.query)
        key, value = (
            states[group, :, first:last].flatten(0, 1) for states in (call.key, call.value)
        )
        for start in range(0, queries, rows):
            stop = min(start + rows, queries)
            # With a causal mask, rows of this strip attend to no keys beyond the last row.
            key_count = min(last - first, stop) if call.is_causal else last - first
            weights = _scores(
                call, group, slice(start, stop), key[:, :key_count], first, masks, scratch
            )
            sums.add(weights, group, start, first, call.is_causal)
            # [sequence * KV head, query head of the KV head * row, width]
            mixed = torch.bmm(weights.view(len(key), -1, key_count), value[:, :key_count])
            mixed = mixed.view(count, heads, stop - start, -1)
            output[group, start:stop] = mixed.transpose(1, 2)
    return output, sums.finish(plan.visibility(masks[0] if masks else None, call.is_causal))


def _scores(
    call: Call,
    group: slice,
    rows: slice,
    key: Tensor,
    first: int,
    masks: list[Tensor],
    scratch: Scratch,
) -> Tensor:
    """[sequence, head, row, key]: masked scores of some sequences and rows, for keys from `first` on."""
    query = call.query[group, :, rows]
    count, heads, length, width = query.shape
    keys = key.shape[1]
    scores = scratch.take("folded", (count, heads, length, keys), query)
    # Query heads that share a key head are next to each other.
    products = scores.view(len(key), -1, keys)
    torch.baddbmm(
        products,
        query.reshape(len(key), -1, width),
        key.transpose(1, 2),
        beta=0,
        alpha=call.scaling,
        out=products,
    )
    window = slice(first, first + keys)
    if call.bias is not None:
        scores += _part(call.bias, group, rows, window)
    for mask in masks:
        part = _part(mask, group, rows, window)
        if part.dtype == torch.bool:
            scores.masked_fill_(~part, torch.finfo(scores.dtype).min)
        else:
            scores += part
    return scores


def _part(cells: Tensor, group: slice, rows: slice, keys: slice) -> Tensor:
    """These sequences, rows and keys of a bias or mask [batch or 1, head or 1, query or 1, key]."""
    cells = cells[group if cells.shape[0] > 1 else slice(None)]
    return cells[:, :, rows if cells.shape[2] > 1 else slice(None), keys]


class _Sums:
    """The arrays to which the compiled pass adds the sums of rows."""

    def __init__(self, plan: FoldPlan, site: Site, heads: int, wanted: Wanted) -> None:
        self.plan, self.site, self.heads, self.wanted = plan, site, heads, wanted
        shape = len(plan.query.real), heads
        queries, keys = plan.query.length, plan.key.length
        offsets = 2 * keys - 1
        self.positions = plan.wanted_rows(wanted, site.stack)
        self.has_segments = plan.has_pairs and bool(
            {"segment_mass", "alike_mass"} & wanted.quantities
        )
        self.has_positions = "position_sums" in wanted.quantities
        side = POSITIONS if self.has_positions else 0
        width = queries if self.has_segments else 0
        # In the order of the parameter `sums` of `row_kernel.fold`; `finish` names them.
        self.arrays = (
            np.zeros((*shape, queries), np.float32),
            np.zeros((*shape, queries), np.float32),
            np.zeros((*shape, queries), np.float32),
            np.zeros((*shape, QUARTERS, keys)),
            np.zeros((*shape, offsets)),
            np.zeros((*shape, offsets)),
            np.zeros((*shape, queries), np.float32),
            np.zeros((*shape, 2, width), np.float32),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros((*shape, self.positions.shape[1], keys), np.float32),
            np.zeros((*shape, 2, queries if wanted.located else 0), np.int32),
            np.zeros((heads, min(side, queries), min(side, keys)), np.float32),
        )
        self.located: NDArray[np.bool_] = np.isin(np.arange(shape[0]), wanted.located)
        self.pictures: dict[int, Tensor] = {}

    def add(
        self, weights: Tensor, group: slice, start: int, first_key: int, is_causal: bool
    ) -> None:
        """Turn the scores of some sequences into weights, and add them."""
        plan = self.plan
        arguments = (
            weights.numpy(),
            (start, is_causal, plan.is_one_text, self.has_segments, self.has_positions),
            plan.query_span.as_array(group),
            plan.key_span.as_array(group, first_key),
            tuple(array[group] for array in plan.tokens),
            (self.positions[group], self.located[group]),
        )
        sums = (*(array[group] for array in self.arrays[:-1]), self.arrays[-1])
        _in_threads(lambda heads: _fold()(*arguments, heads, sums), self.heads)
        for sequence in range(group.start, group.stop):
            if sequence in self.wanted.pictured:
                self._add_picture(sequence, weights[sequence - group.start], start, first_key)

    def _add_picture(self, sequence: int, weights: Tensor, start: int, first_key: int) -> None:
        """Add rows [head, row, key] to the picture of a sequence."""
        plan = self.plan
        first, count = (int(n[sequence]) for n in (plan.query_span.first, plan.query_span.count))
        column = int(plan.key_span.first[sequence]) - first_key
        width = int(plan.key_span.count[sequence])
        begin, end = max(first - start, 0), min(first + count - start, weights.shape[1])
        if begin >= end:
            return
        real = weights[:, begin:end, column : column + width]
        by_row = area_means(count, real.dtype)[:, start + begin - first : start + end - first]
        picture = by_row @ real @ area_means(width, real.dtype)[:, : real.shape[-1]].T
        self.pictures[sequence] = self.pictures.get(sequence, 0) + picture

    def finish(self, visibility: Visibility) -> RowSums:
        tensors = [torch.from_numpy(array) for array in self.arrays]
        rows, argmaxima, positions = tensors[-3:]
        requests, begin = {}, 0
        for request in self.wanted.requests:
            end = begin + request(self.plan.query, self.site.stack).shape[1]
            requests[request] = rows[:, :, begin:end]
            begin = end
        row_max, content, entropy, quarters, offsets, argmax, diagonal, segments, near, alike = (
            tensors[:-3]
        )
        return RowSums(
            self.site,
            self.plan.query,
            self.plan.key,
            visibility,
            row_max=row_max,
            content_row_max=content,
            row_entropy=entropy,
            quarter_mass=quarters,
            offset_mass=offsets,
            content_argmax_offsets=argmax,
            diagonal=diagonal,
            segment_mass=segments,
            near_content_mass=near,
            alike_mass=alike,
            position_sums=positions,
            row_argmax=argmaxima[:, :, 0],
            content_row_argmax=argmaxima[:, :, 1],
            _rows=requests,
            _pictures=self.pictures,
        )


@cache
def _fold() -> Any:
    from headscope.model.row_kernel import fold

    return fold


def thread_count() -> int:
    """As many threads as torch uses."""
    return torch.get_num_threads()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def _in_threads(work: Callable[[tuple[int, int]], object], heads: int) -> None:
    """Call `work` with ranges of heads, in as many threads as torch uses: it releases the interpreter's lock."""
    threads = min(thread_count(), heads)
    if threads == 1:
        work((0, heads))
        return
    cuts = [heads * i // threads for i in range(threads + 1)]
    list(_pool(threads).map(work, pairwise(cuts)))
