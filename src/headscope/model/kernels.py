"""Attention written out, for when it is watched or its scores are edited: once plainly, once fast.

Both give what the library's own kernels give (to 1e-5 in float32) and hand weights, scores and values to
`see` on the way.
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

    scaling    what the products are multiplied by; not always 1/√width
    mask       bool (True may attend) or float (added), broadcastable to [batch, head, query, key]
    bias       added to the scores (T5's relative positions)
    is_causal  whether a query sees only keys up to its own position, on top of the mask
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
        """Of the weights: batch, head, query, key."""
        batch, heads, queries, _ = self.query.shape
        return (
            batch,
            heads if self.fixed is None else len(self.fixed.patterns),
            queries,
            self.key.shape[2],
        )

    @property
    def groups(self) -> int:
        """How many query heads share one key and value head."""
        return self.query.shape[1] // self.key.shape[1]

    def hides_only(self, padding: Tensor) -> bool:
        """Whether the mask does no more than hide these keys [batch, key], so that leaving them out is the same."""
        if self.is_causal:
            return False
        if self.mask is None:
            return not bool(padding.any())
        same_for_all_queries = self.mask.shape[2] == 1 or self.mask.stride(2) == 0
        if self.mask.dtype != torch.bool or not same_for_all_queries or self.mask.shape[1] != 1:
            return False
        return torch.equal(self.mask[:, 0, 0].expand_as(padding), ~padding)

    def masks(self) -> list[Tensor]:
        """Every mask to apply to scores, the causal one included."""
        masks = [] if self.mask is None else [self.mask]
        if self.is_causal:
            _, _, queries, keys = self.shape
            masks.append(
                torch.ones(queries, keys, dtype=torch.bool, device=self.query.device).tril()[
                    None, None
                ]
            )
        return masks


def add_masks(call: Call, masks: Sequence[Tensor]) -> Call:
    """The call with further masks; a query that may then attend to nothing attends to itself."""
    allowed, added = _together([*call.masks(), *masks], call.shape, call.query)
    mask = allowed if added is None else torch.where(allowed, added, torch.finfo(added.dtype).min)
    return replace(call, mask=mask, is_causal=False)


def add_masks_to_scores(scores: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """The same for scores [batch, head, query, key] in which padding is masked already."""
    seen = scores.detach() > masked_score(scores.dtype)
    allowed, added = _together([seen, *masks], (*scores.shape,), scores)
    return torch.where(
        allowed, scores if added is None else scores + added, torch.finfo(scores.dtype).min
    )


def _together(
    masks: Sequence[Tensor], shape: tuple[int, ...], like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Where all masks let attention go, at least to a query itself, and what those that are no bools add."""
    lowest = masked_score(like.dtype)
    allowed = torch.ones((), dtype=torch.bool, device=like.device)
    added: Tensor | None = None
    for mask in masks:
        if mask.dtype == torch.bool:
            allowed = allowed & mask
        else:
            allowed = allowed & (mask.detach() > lowest)
            finite = mask.to(like.dtype).clamp_min(lowest)
            added = finite if added is None else added + finite
    queries, keys = shape[-2:]
    own = (
        torch.ones(queries, keys, dtype=torch.bool, device=like.device)
        .triu(keys - queries)
        .tril(keys - queries)
    )
    return allowed | (own & ~allowed.any(dim=-1, keepdim=True)), added


def attend_sdpa(call: Call) -> Tensor:
    """[batch, query, head, width] by torch's own kernel, for a mask that the library does not know of."""
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
    see: Callable[[Tensor, Tensor, Tensor], None] | None,
) -> Tensor:
    """[batch, query, head, width], the textbook on the whole batch at once: differentiable, any dtype, any edit."""
    key, value = (states.repeat_interleave(call.groups, dim=1) for states in (call.key, call.value))
    scores = call.query @ key.transpose(-1, -2) * call.scaling
    if call.bias is not None:
        scores = scores + call.bias
    for mask in call.masks():
        hidden = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, hidden) if mask.dtype == torch.bool else scores + mask
    scores = edit_scores(scores)
    weights = edit_weights(
        torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    )
    if see is not None:
        see(weights, scores, value)
    weights = nn.functional.dropout(
        weights.to(value.dtype), p=call.dropout, training=call.module.training
    )
    return (weights @ value).transpose(1, 2).contiguous()


def attend_in_chunks(
    call: Call,
    chunks: list[Chunk],
    padding: Tensor,
    see: Callable[[Chunk, Tensor, Tensor, Tensor], None],
    scratch: Scratch,
) -> Tensor:
    """[batch, query, head, width], a run of equally long sequences at a time, without their padding keys.

    In memory that is used again and stays in the cache: faster than the textbook although `see` takes every
    statistic on the way. No gradients.
    """
    batch, heads, queries, _ = call.shape
    output = call.query.new_empty(batch, queries, heads, call.value.shape[-1])
    masks = [] if call.hides_only(padding) else call.masks()
    for chunk in chunks:
        query = call.query[chunk.rows]
        key, value = (
            states[chunk.rows, :, chunk.key_index].repeat_interleave(call.groups, dim=1)
            if call.groups > 1
            else states[chunk.rows, :, chunk.key_index]
            for states in (call.key, call.value)
        )
        size, keys = query.shape[0], key.shape[2]
        scores = scratch.take("scores", (size, heads, queries, keys), query)
        weights = scratch.take("weights", (size, heads, queries, keys), query)
        mixed = scratch.take("mixed", (size, heads, queries, value.shape[-1]), query)
        products = scores.view(-1, queries, keys)
        torch.baddbmm(
            products,
            query.flatten(0, 1),
            key.flatten(0, 1).transpose(1, 2),
            beta=0,
            alpha=call.scaling,
            out=products,
        )
        if call.bias is not None:
            scores += call.bias[chunk.rows if call.bias.shape[0] > 1 else slice(None)][
                ..., chunk.key_index
            ]
        for mask in masks:
            _apply_mask(
                scores, mask[chunk.rows if mask.shape[0] > 1 else slice(None)][..., chunk.key_index]
            )
        torch.softmax(scores, dim=-1, out=weights)
        torch.bmm(
            weights.view(-1, queries, keys),
            value.flatten(0, 1),
            out=mixed.view(-1, *mixed.shape[2:]),
        )
        output[chunk.rows] = mixed.transpose(1, 2)
        see(chunk, weights[:, :, chunk.query_index], scores[:, :, chunk.query_index], value)
    return output


def _apply_mask(scores: Tensor, mask: Tensor) -> None:
    if mask.dtype == torch.bool:
        scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    else:
        scores += mask
