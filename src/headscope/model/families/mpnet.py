"""MPNet: a BERT with a bias of relative positions and a softmax of its own."""

from functools import cache
from typing import Any

from torch import Tensor

from headscope.model.families.family import Family, encoder, encoder_layers, keep_heads
from headscope.model.softmax_tap import Tap


@cache
def _pruned_class(attention: Any) -> Any:
    """MPNet's attention with some of its heads; the position bias is passed in for all heads."""

    class PrunedMPNetAttention(attention):  # type: ignore[misc]
        def forward(
            self,
            hidden: Tensor,
            mask: Tensor | None = None,
            position_bias: Tensor | None = None,
            **others: Any,
        ) -> Any:
            if position_bias is not None:
                position_bias = position_bias[:, self.kept_heads]
            return super().forward(hidden, mask, position_bias, **others)

    return PrunedMPNetAttention


MPNET = Family(
    model_types=("mpnet",),
    layers=encoder_layers,
    stack=encoder,
    counts_from_padding=("mpnet",),
    settle=keep_heads(_pruned_class),
    tap=Tap(
        "MPNetSelfAttention", "forward", lambda module: module.num_attention_heads, projection="o"
    ),
)
