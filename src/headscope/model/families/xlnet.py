"""XLNet: relative attention on time-major states, with a second stream that attends from the tokens to predict.

The content stream is the stack `encoder`. The query stream is the stack `query`; it runs only if `target_mapping` is
passed, as in pre-training. Its queries are the tokens to predict (targets), its keys are those of the content stream.
Both streams use the same weights: each attention module is called once per stream.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headscope.model.families.family import Family
from headscope.model.softmax_tap import Tap


def layers(config: Any) -> dict[str, int]:
    """`Family.layers`: the number of sites of each stack."""
    return {"encoder": config.n_layer, "query": config.n_layer}


def stack(name: str, occurrence: int) -> str:
    """`Family.stack`: the first call of a module is the content stream, the second the query stream."""
    return "encoder" if occurrence == 0 else "query"


def edit(result: Any, editor: Callable[[Tensor], Tensor]) -> Any:
    """`Tap.edit`: edit the result [query, batch, head, width] of rel_attn_core, which may be a tuple with weights.

    editor  function of outputs [batch, query, head, width]
    """
    if isinstance(result, tuple):
        return edit(result[0], editor), *result[1:]
    return editor(result.transpose(0, 1)).transpose(0, 1)


def two_streams(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """`Family.dry_inputs`: predict the first token, so that the query stream runs too."""
    batch, length = inputs["input_ids"].shape
    mapping = torch.zeros(batch, 1, length)  # [sequence, target, token]
    mapping[:, 0, 0] = 1.0
    return {"perm_mask": torch.zeros(batch, length, length), "target_mapping": mapping}


# `Family.axes`: projections are parameters [width, head, head width], not linear layers; biases are [head, head width].
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
        # [key, batch, head, width] to [batch, head, key, width]
        values=lambda values, heads: values.permute(1, 2, 0, 3),
        # [out, head, width] to [head, out, width]
        output=lambda module: module.o.permute(1, 0, 2),
    ),
    dry_inputs=two_streams,
    time_major=True,
    axes=AXES,
    # Nothing to do: XLNet's own code runs without heads, since einsum over no heads gives zeros.
    silence=lambda core: None,
)
