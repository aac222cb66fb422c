"""DeBERTa v2 and v3: disentangled content and position scores, summed before a softmax of its own."""

from typing import Any

from torch import Tensor, nn

from headscope.model.families.family import Family, encoder, encoder_layers
from headscope.model.softmax_tap import Tap


class HeadlessDebertaAttention(nn.Module):
    """Attention without heads, which DeBERTa's own code cannot compute: an empty vector for every token."""

    num_attention_heads = 0

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        return hidden_states[..., :0], None


def silence(core: nn.Module) -> None:
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
        values=lambda values, heads: values.reshape(-1, heads, *values.shape[1:]),
    ),
    silence=silence,
)
