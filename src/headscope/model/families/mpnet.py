"""MPNet: a BERT with a bias of relative positions and a softmax of its own."""

from functools import cache
from typing import Any

from torch import Tensor, nn

from headscope.model.families.family import Family, encoder, encoder_layers
from headscope.model.softmax_tap import Tap


@cache
def _cut(attention: Any) -> Any:
    """MPNet's attention with some of its heads: the bias of positions comes from outside, for all of them."""

    class PrunedMPNetAttention(attention):  # type: ignore[misc]
        def forward(
            self,
            hidden: Tensor,
            mask: Tensor | None = None,
            position_bias: Tensor | None = None,
            **others: Any,
        ) -> Any:
            mine = None if position_bias is None else position_bias[:, self.kept_heads]
            return super().forward(hidden, mask, mine, **others)

    return PrunedMPNetAttention


def settle(core: nn.Module, numbers: tuple[int, ...]) -> None:
    if not hasattr(core, "kept_heads"):
        kind: Any = type(core)
        core.__class__ = _cut(kind)
    core.kept_heads = list(numbers)  # type: ignore[assignment]


MPNET = Family(
    model_types=("mpnet",),
    layers=encoder_layers,
    stack=encoder,
    counts_from_padding=("mpnet",),
    settle=settle,
    tap=Tap(
        "MPNetSelfAttention", "forward", lambda module: module.num_attention_heads, projection="o"
    ),
)
