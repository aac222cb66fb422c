"""XLNet: relative attention, time-major, and in pre-training a second stream that queries from the targets.

The content stream is the stack `encoder`; the query stream (used only when `target_mapping` is given) is the stack
`query`: its rows are the targets, its keys the content. Both use the same weights.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headscope.model.families.family import Family
from headscope.model.softmax_tap import Tap


def layers(config: Any) -> dict[str, int]:
    return {"encoder": config.n_layer, "query": config.n_layer}


def stack(name: str, occurrence: int) -> str:
    return "encoder" if occurrence == 0 else "query"


def edit(result: Any, editor: Callable[[Tensor], Tensor]) -> Any:
    """Edit the method's result [query, batch, head, width], which may come with the weights."""
    if isinstance(result, tuple):
        return edit(result[0], editor), *result[1:]
    return editor(result.transpose(0, 1)).transpose(0, 1)


def two_streams(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Predict the first token, so that the query stream runs too."""
    batch, length = inputs["input_ids"].shape
    mapping = torch.zeros(batch, 1, length)
    mapping[:, 0, 0] = 1.0
    return {"perm_mask": torch.zeros(batch, length, length), "target_mapping": mapping}


AXES = dict.fromkeys(("q", "k", "v", "o", "r", "seg_embed"), 1)
AXES |= dict.fromkeys(("r_w_bias", "r_r_bias", "r_s_bias"), 0)

XLNET = Family(
    model_types=("xlnet",),
    layers=layers,
    stack=stack,
    tap=Tap(
        "XLNetRelativeAttention",
        "rel_attn_core",
        lambda module: module.n_head,
        edit=edit,
        values=lambda values, heads: values.permute(1, 2, 0, 3),  # [key, batch, head, width]
        output=lambda module: module.o.permute(1, 0, 2),
    ),
    dry_inputs=two_streams,
    time_major=True,
    axes=AXES,
    silence=lambda core: None,  # its sums over no heads are zero by themselves
)
