"""Kernels for attention calls that are observed or edited.

The kernels of PyTorch do not return weights. `attend_eager` implements the definition for the entire batch.
`attend_in_chunks` is faster, without gradients and edits. Both agree with the model's own kernel (to 1e-5 in float32),
and pass weights, scores and values to `observe`. `attend_sdpa` is PyTorch's kernel, for calls with further masks only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headscope.model.attention import Scratch
from headscope.model.edits import masked_score
from headscope.model.tokens import Chunk

if TYPE_CHECKING:
    from headscope.model.fixed_attention import FixedHeads


@dataclass(frozen=True)
class Call:
    """One call of an attention module.

    query, key, value  [batch, head, token, width]; key and value may have fewer heads (`groups`)
    scaling    the factor that multiplies the products of queries and keys; not always 1/√width
    mask       bool (True may attend) or float (added), broadcastable to [batch, head, query, key]
    bias       [batch or 1, head, query, key], added to the scores: relative positions of T5, patterns of fixed heads
    is_causal  whether a query sees only keys up to its own position, in addition to the mask
    fixed      heads that attend by a fixed pattern; query and key then contain only the other heads
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    dropout: float
    bias: Tensor | None
    is_causal: bool
    fixed: FixedHeads | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights: batch, head, query, key."""
        batch, heads, queries, _ = self.query.shape
        heads = heads if self.fixed is None else len(self.fixed.patterns)
        return batch, heads, queries, self.key.shape[2]

    @property
    def groups(self) -> int:
        """The number of query heads that share one KV head."""
        return self.query.shape[1] // self.key.shape[1]

    def hides_only(self, padding: Tensor) -> bool:
        """Whether the mask only hides these keys [batch, key]; they can then be left out instead of masked."""
        if self.is_causal:
            return False
        if self.mask is None:
            return not bool(padding.any())
        # transformers expands the mask over the queries, which gives this axis a stride of 0.
        same_for_all_queries = self.mask.shape[2] == 1 or self.mask.stride(2) == 0
        if self.mask.dtype != torch.bool or not same_for_all_queries or self.mask.shape[1] != 1:
            return False
        return torch.equal(self.mask[:, 0, 0].expand_as(padding), ~padding)

    def masks(self) -> list[Tensor]:
        """Every mask of the scores, the causal one included."""
        masks = [] if self.mask is None else [self.mask]
        if self.is_causal:
            _, _, queries, keys = self.shape
            everywhere = torch.ones(queries, keys, dtype=torch.bool, device=self.query.device)
            masks.append(everywhere.tril()[None, None])
        return masks


def add_masks(call: Call, masks: Sequence[Tensor]) -> Call:
    """The call with further masks. A query without any allowed key attends to its own token."""
    allowed, bias = _combine([*call.masks(), *masks], call.shape, call.query)
    mask = allowed if bias is None else torch.where(allowed, bias, torch.finfo(bias.dtype).min)
    return replace(call, mask=mask, is_causal=False)


def add_masks_to_scores(scores: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """Scores [batch, head, query, key] with further masks; the model's own masks were already added to them.

    As in `add_masks`, a query without any allowed key attends to its own token.
    """
    visible = scores.detach() > masked_score(scores.dtype)
    allowed, bias = _combine([visible, *masks], (*scores.shape,), scores)
    scores = scores if bias is None else scores + bias
    return torch.where(allowed, scores, torch.finfo(scores.dtype).min)


def _combine(
    masks: Sequence[Tensor], shape: tuple[int, ...], like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Which keys all masks allow (bool), and the sum of the float masks; None if all are bool."""
    lowest = masked_score(like.dtype)
    allowed = torch.ones((), dtype=torch.bool, device=like.device)
    bias: Tensor | None = None
    for mask in masks:
        if mask.dtype == torch.bool:
            allowed = allowed & mask
        else:
            allowed = allowed & (mask.detach() > lowest)
            # The sum of several minima must not overflow.
            finite = mask.to(like.dtype).clamp_min(lowest)
            bias = finite if bias is None else bias + finite
    queries, keys = shape[-2:]
    # The softmax of a row without any allowed key would be uniform over all keys, including padding. Such a row gets
    # its own token instead. With a cache of earlier tokens the queries are the last keys: the diagonal is shifted.
    everywhere = torch.ones(queries, keys, dtype=torch.bool, device=like.device)
    own = everywhere.triu(keys - queries).tril(keys - queries)
    return allowed | (own & ~allowed.any(dim=-1, keepdim=True)), bias


def attend_sdpa(call: Call) -> Tensor:
    """[batch, query, head, width] by PyTorch's kernel, for calls whose mask was changed after the model made it."""
    mask = call.mask
    if call.bias is not None and mask is not None:
        lowest = torch.finfo(call.query.dtype).min
        mask = (
            call.bias.masked_fill(~mask, lowest) if mask.dtype == torch.bool else call.bias + mask
        )
    output = nn.functional.scaled_dot_product_attention(
        call.query,
        call.key.repeat_interleave(call.groups, dim=1),
        call.value.repeat_interleave(call.groups, dim=1),
        attn_mask=call.bias if mask is None else mask,
        dropout_p=call.dropout,
        is_causal=call.is_causal,
        scale=call.scaling,
    )
    return output.transpose(1, 2).contiguous()


def attend_eager(
    call: Call,
    edit_scores: Callable[[Tensor], Tensor],
    edit_weights: Callable[[Tensor], Tensor],
    observe: Callable[[Tensor, Tensor, Tensor], None] | None,
) -> Tensor:
    """[batch, query, head, width] by the definition, on the entire batch: differentiable, any dtype, any edit.

    edit_scores, edit_weights  functions of [batch, head, query, key]
    observe                    called with (weights, scores, values) of the batch
    """
    key, value = (states.repeat_interleave(call.groups, dim=1) for states in (call.key, call.value))
    scores = call.query @ key.transpose(-1, -2) * call.scaling
    if call.bias is not None:
        scores = scores + call.bias
    for mask in call.masks():
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask
    scores = edit_scores(scores)
    at_least_float32 = torch.promote_types(scores.dtype, torch.float32)
    weights = edit_weights(torch.softmax(scores, dim=-1, dtype=at_least_float32))
    if observe is not None:
        observe(weights, scores, value)
    weights = nn.functional.dropout(
        weights.to(value.dtype), p=call.dropout, training=call.module.training
    )
    return (weights @ value).transpose(1, 2).contiguous()


def attend_in_chunks(
    call: Call,
    chunks: list[Chunk],
    padding: Tensor,
    observe: Callable[[Chunk, Tensor, Tensor, Tensor], None],
    scratch: Scratch,
) -> Tensor:
    """[batch, query, head, width], computed for one chunk of equally long sequences at a time, without padding keys.

    Chunks are computed in reused buffers that stay in the processor's cache. That makes it faster than `attend_eager`,
    even including the time of `observe`. No gradients.

    padding  [batch, key], bool
    observe  called with (chunk, weights, scores, values) of each chunk, without padding
    """
    batch, heads, queries, _ = call.shape
    output = call.query.new_empty(batch, queries, heads, call.value.shape[-1])
    masks = [] if call.hides_only(padding) else call.masks()
    for chunk in chunks:
        query = call.query[chunk.rows]
        key, value = (states[chunk.rows, :, chunk.key_index] for states in (call.key, call.value))
        if call.groups > 1:
            key, value = (states.repeat_interleave(call.groups, dim=1) for states in (key, value))
        sequences, keys = query.shape[0], key.shape[2]
        scores = scratch.take("scores", (sequences, heads, queries, keys), query)
        weights = scratch.take("weights", (sequences, heads, queries, keys), query)
        results = scratch.take("mixed", (sequences, heads, queries, value.shape[-1]), query)
        flat_scores = scores.view(-1, queries, keys)  # [sequence * head, query, key]
        # scores = scaling * query @ key^T. beta=0 ignores the old content of the buffer; alpha scales the product.
        torch.baddbmm(
            flat_scores,
            query.flatten(0, 1),
            key.flatten(0, 1).transpose(1, 2),
            beta=0,
            alpha=call.scaling,
            out=flat_scores,
        )
        if call.bias is not None:
            scores += _select_chunk(call.bias, chunk)
        for mask in masks:
            chunk_mask = _select_chunk(mask, chunk)
            if chunk_mask.dtype == torch.bool:
                scores.masked_fill_(~chunk_mask, torch.finfo(scores.dtype).min)
            else:
                scores += chunk_mask
        torch.softmax(scores, dim=-1, out=weights)
        flat_results = results.view(-1, *results.shape[2:])  # [sequence * head, query, width]
        torch.bmm(weights.view(-1, queries, keys), value.flatten(0, 1), out=flat_results)
        output[chunk.rows] = results.transpose(1, 2)
        # Padding queries get an output too, as in the model's own kernel, but observers do not see them.
        observe(chunk, weights[:, :, chunk.query_index], scores[:, :, chunk.query_index], value)
    return output


def _select_chunk(cells: Tensor, chunk: Chunk) -> Tensor:
    """A bias or mask [batch or 1, …, key] at the sequences and keys of a chunk."""
    rows = chunk.rows if cells.shape[0] > 1 else slice(None)
    return cells[rows][..., chunk.key_index]
