"""Attention under a mask that leaves work out: in plain torch, and by torch's FlexAttention, compiled.

In plain torch, strips of queries attend to the keys that any of them sees. A window, even with a few global positions,
needs few of the keys for each strip; scattered masks need all of them for every strip, and then nothing is saved. No
compiler is needed. FlexAttention leaves out the blocks in which a mask allows nothing.
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
    """Queries that are answered together, the keys they see, and which sees which (4-D; None where all see all)."""

    queries: slice | Tensor
    keys: slice | Tensor
    allowed: Tensor | None


def strips_of(allowed: Tensor, block: int = BLOCK) -> list[Strip]:
    """A mask [head or 1, query, key] without empty rows, as strips of at most `block` queries.

    Queries that see more than half of the keys go together, so that one of them does not widen its neighbours' strip.
    """
    seen = allowed.any(dim=0)
    sees_most = seen.sum(dim=-1) > seen.shape[-1] / 2
    found = []
    for group in (~sees_most, sees_most):
        for queries in torch.split(group.nonzero()[:, 0], block):
            if len(queries):
                keys = seen[queries].any(dim=0).nonzero()[:, 0]
                cells = allowed[:, queries][:, :, keys]
                found.append(Strip(_run(queries), _run(keys), None if cells.all() else cells[None]))
    return found


def attend_by_blocks(query: Tensor, key: Tensor, value: Tensor, strips: Sequence[Strip]) -> Tensor:
    """[batch, head, query, width]: what SDPA gives under the mask that the strips were made of."""
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


def _run(places: Tensor) -> slice | Tensor:
    """A slice where the places follow each other: nothing is copied then."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


def compile_flex(allowed: Tensor) -> Attend:
    """Attention under a mask [head or 1, query, key], to be compiled at its first call; what fails then is torch's.

    Every mask is compiled anew: what torch has compiled before in this process is forgotten, as it gives up in silence
    after a few shapes of one function.
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
