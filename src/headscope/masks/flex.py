"""Block-sparse attention by torch's FlexAttention, compiled: blocks in which a mask allows nothing are left out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headscope.masks.block_sparse import BLOCK

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def compiled_flex(allowed: Tensor) -> Attend:
    """Attention under a mask [head or 1, query, key], to be compiled at its first call; what fails then is torch's.

    Every mask is compiled anew: what torch has compiled before in this process is forgotten, as it gives up in silence
    after a few shapes of one function.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, queries, keys = allowed.shape

    def allows(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return allowed[head, query, key] if heads > 1 else allowed[0, query, key]

    blocks = create_block_mask(
        allows,
        None,
        heads if heads > 1 else None,
        queries,
        keys,
        device=str(allowed.device),
        BLOCK_SIZE=BLOCK,
    )
    torch.compiler.reset()
    run = torch.compile(flex_attention, fullgraph=True, dynamic=False)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output: Tensor = run(query, key, value, block_mask=blocks)
        return output

    return attend
