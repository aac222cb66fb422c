"""Block-sparse attention under a mask: in plain torch, and by torch's compiled FlexAttention.

In plain torch, queries are split into strips; each strip computes attention only with the keys that any of its queries
may attend to. A window mask, even with a few global positions, needs few keys per strip. A scattered mask needs all
keys for every strip, which saves nothing. This needs no compiler. FlexAttention is compiled and skips the blocks in
which the mask allows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BLOCK = 128
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Strip:
    """Queries, the keys that any of them may attend to, and the mask between them (4-D; None if all are allowed)."""

    queries: slice | Tensor
    keys: slice | Tensor
    allowed: Tensor | None


def strips_of(allowed: Tensor, block: int = BLOCK) -> list[Strip]:
    """Split a mask [head or 1, query, key] into strips of at most `block` queries. The mask must have no empty rows.

    Queries that attend to more than half of the keys get strips of their own, so that they do not widen other strips.
    """
    by_any_head = allowed.any(dim=0)  # [query, key]
    is_wide = by_any_head.sum(dim=-1) > by_any_head.shape[-1] / 2
    strips = []
    for group in (~is_wide, is_wide):
        for queries in torch.split(group.nonzero()[:, 0], block):
            if len(queries):
                keys = by_any_head[queries].any(dim=0).nonzero()[:, 0]
                cells = allowed[:, queries][:, :, keys]  # [head or 1, query, key]
                mask = None if cells.all() else cells[None]
                strips.append(Strip(_as_slice(queries), _as_slice(keys), mask))
    return strips


def attend_by_blocks(query: Tensor, key: Tensor, value: Tensor, strips: Sequence[Strip]) -> Tensor:
    """[batch, head, query, width]: the output of scaled dot product attention under the mask of these strips."""
    output = torch.empty_like(query)
    for strip in strips:
        output[:, :, strip.queries] = nn.functional.scaled_dot_product_attention(
            query[:, :, strip.queries],
            key[:, :, strip.keys],
            value[:, :, strip.keys],
            attn_mask=strip.allowed,
        )
    return output


def share_of_blocks(allowed: Tensor, block: int = BLOCK) -> float:
    """The share of `block` x `block` squares of a mask [head or 1, query, key] in which anything is allowed."""
    heads, queries, keys = allowed.shape
    wide = nn.functional.pad(allowed, (0, -keys % block, 0, -queries % block))
    squares = wide.view(heads, wide.shape[1] // block, block, wide.shape[2] // block, block)
    return float(squares.any(dim=4).any(dim=2).float().mean())


def _as_slice(indices: Tensor) -> slice | Tensor:
    """A slice if the indices are consecutive, so that nothing is copied."""
    first, last = int(indices[0]), int(indices[-1])
    return slice(first, last + 1) if last - first + 1 == len(indices) else indices


def compile_flex(allowed: Tensor) -> Attend:
    """A function for attention under a mask [head or 1, query, key]. Its first call compiles and may raise errors.

    Resets torch's compiler, because it silently stops compiling a function after a few input shapes.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, queries, keys = allowed.shape

    def allows(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return allowed[head, query, key] if heads > 1 else allowed[0, query, key]

    size = (None, heads if heads > 1 else None, queries, keys)  # batch, heads, queries, keys
    blocks = create_block_mask(allows, *size, device=str(allowed.device), BLOCK_SIZE=BLOCK)
    torch.compiler.reset()
    run = torch.compile(flex_attention, fullgraph=True, dynamic=False)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output: Tensor = run(query, key, value, block_mask=blocks)
        return output

    return attend
