"""MPNet: BERT with a bias of relative positions. Its attention code calls softmax itself, so it needs a tap."""

from functools import cache
from typing import Any

from torch import Tensor

from headscope.model.families.family import Family, encoder, encoder_layers, keep_heads
from headscope.model.softmax_tap import Tap


@cache
def _pruned_class(attention: Any) -> Any:
    """A subclass of MPNet's attention that runs with some of its heads.

    The encoder computes the position bias [1, head, query, key] once, with all heads; `forward` selects from it.
    """

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
