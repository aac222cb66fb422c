"""Attention written out, for calls that are observed or edited: once as in the textbook, once fast in chunks.

Both give what the library's own kernels give (to 1e-5 in float32), and pass weights, scores and values to `observe`.
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
    """One call of an attention module. query, key, value: [batch, head, token, width].

    scaling    factor of the products of queries and keys; not always 1/√width
    mask       bool (True may attend) or float (added), broadcastable to [batch, head, query, key]
    bias       added to the scores (T5's relative positions)
    is_causal  whether a query sees only keys up to its own position, in addition to the mask
    fixed      the heads that have no queries and keys; query and key are then those of the others
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
        """The number of query heads that share one key and value head."""
        return self.query.shape[1] // self.key.shape[1]

    def hides_only(self, padding: Tensor) -> bool:
        """Whether the mask does nothing but hide these keys [batch, key]; then they can be left out instead."""
        if self.is_causal:
            return False
        if self.mask is None:
            return not bool(padding.any())
        # A stride of 0 is an expanded axis: transformers expands the mask over the queries.
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
    """The call with further masks; a query that may then attend to nothing attends to itself."""
    allowed, bias = _combine([*call.masks(), *masks], call.shape, call.query)
    mask = allowed if bias is None else torch.where(allowed, bias, torch.finfo(bias.dtype).min)
    return replace(call, mask=mask, is_causal=False)


def add_masks_to_scores(scores: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """The same for scores [batch, head, query, key] in which padding is masked already."""
    visible = scores.detach() > masked_score(scores.dtype)
    allowed, bias = _combine([visible, *masks], (*scores.shape,), scores)
    scores = scores if bias is None else scores + bias
    return torch.where(allowed, scores, torch.finfo(scores.dtype).min)


def _combine(
    masks: Sequence[Tensor], shape: tuple[int, ...], like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Which keys all masks allow (bool), and the sum of the masks that are added to the scores."""
    lowest = masked_score(like.dtype)
    allowed = torch.ones((), dtype=torch.bool, device=like.device)
    bias: Tensor | None = None
    for mask in masks:
        if mask.dtype == torch.bool:
            allowed = allowed & mask
        else:
            allowed = allowed & (mask.detach() > lowest)
            finite = mask.to(like.dtype).clamp_min(lowest)  # two masks of -inf must not overflow
            bias = finite if bias is None else bias + finite
    queries, keys = shape[-2:]
    # A row without any key would be uniform over everything, padding included: it gets its own token instead. With a
    # cache of earlier tokens the queries are the last keys, so that "its own" is on a shifted diagonal.
    everywhere = torch.ones(queries, keys, dtype=torch.bool, device=like.device)
    own = everywhere.triu(keys - queries).tril(keys - queries)
    return allowed | (own & ~allowed.any(dim=-1, keepdim=True)), bias


def attend_sdpa(call: Call) -> Tensor:
    """[batch, query, head, width] by torch's own kernel, for calls with masks that the library does not know."""
    mask = call.mask
    if call.bias is not None and mask is not None:
        hidden = torch.finfo(call.query.dtype).min
        mask = (
            call.bias.masked_fill(~mask, hidden) if mask.dtype == torch.bool else call.bias + mask
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
    """[batch, query, head, width] as in the textbook, on the whole batch: differentiable, any dtype, any edit."""
    key, value = (states.repeat_interleave(call.groups, dim=1) for states in (call.key, call.value))
    scores = call.query @ key.transpose(-1, -2) * call.scaling
    if call.bias is not None:
        scores = scores + call.bias
    for mask in call.masks():
        hidden = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, hidden) if mask.dtype == torch.bool else scores + mask
    scores = edit_scores(scores)
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = edit_weights(torch.softmax(scores, dim=-1, dtype=precise))
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
    """[batch, query, head, width], some equally long sequences at a time, without their padding keys.

    Works in buffers that are used again and stay in the processor's cache: faster than the textbook, although `observe`
    computes all statistics on the way. No gradients.
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
        mixed = scratch.take("mixed", (sequences, heads, queries, value.shape[-1]), query)
        products = scores.view(-1, queries, keys)  # [sequence * head, query, key]
        # scores = scaling * query @ key^T: beta 0 ignores what the buffer held, alpha saves a pass over the cells.
        torch.baddbmm(
            products,
            query.flatten(0, 1),
            key.flatten(0, 1).transpose(1, 2),
            beta=0,
            alpha=call.scaling,
            out=products,
        )
        if call.bias is not None:
            scores += _of_chunk(call.bias, chunk)
        for mask in masks:
            part = _of_chunk(mask, chunk)
            if part.dtype == torch.bool:
                scores.masked_fill_(~part, torch.finfo(scores.dtype).min)
            else:
                scores += part
        torch.softmax(scores, dim=-1, out=weights)
        rows = mixed.view(-1, *mixed.shape[2:])  # [sequence * head, query, width]
        torch.bmm(weights.view(-1, queries, keys), value.flatten(0, 1), out=rows)
        output[chunk.rows] = mixed.transpose(1, 2)
        # Queries that are padding need an output as well, but observers do not see them.
        observe(chunk, weights[:, :, chunk.query_index], scores[:, :, chunk.query_index], value)
    return output


def _of_chunk(cells: Tensor, chunk: Chunk) -> Tensor:
    """The chunk's sequences and keys of a bias or mask [batch or 1, …, key]."""
    rows = chunk.rows if cells.shape[0] > 1 else slice(None)
    return cells[rows][..., chunk.key_index]
