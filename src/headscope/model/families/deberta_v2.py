"""DeBERTa v2 and v3: scores are sums of content and position terms, in the model's own attention code.

The family needs a tap, since this code does not use the attention interface of transformers.
"""

from typing import Any

from torch import Tensor, nn

from headscope.model.families.family import Family, encoder, encoder_layers
from headscope.model.softmax_tap import Tap


class HeadlessDebertaAttention(nn.Module):
    """Attention without heads: an empty vector for every token. DeBERTa's own code fails without heads."""

    num_attention_heads = 0

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        return hidden_states[..., :0], None


def silence(core: nn.Module) -> None:
    """`Family.silence`: `core` is a DebertaV2Attention, whose part `self` attends."""
    core.self = HeadlessDebertaAttention()


DEBERTA_V2 = Family(
    model_types=("deberta-v2",),
    layers=encoder_layers,
    stack=encoder,
    tap=Tap(
        "DebertaV2Attention",
        "forward",
        lambda module: module.self.num_attention_heads,
        projection="output.dense",
        # [batch * head, key, width] to [batch, head, key, width]
        values=lambda values, heads: values.reshape(-1, heads, *values.shape[1:]),
    ),
    silence=silence,
)
