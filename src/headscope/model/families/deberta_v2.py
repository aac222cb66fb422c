"""DeBERTa v2 and v3: disentangled content and position scores, summed before a softmax of its own."""

from headscope.model.families.family import Family, encoder, encoder_layers
from headscope.model.tap import Tap

DEBERTA_V2 = Family(
    model_types=("deberta-v2",),
    layers=encoder_layers,
    stack=encoder,
    tap=Tap(
        "DebertaV2Attention",
        "forward",
        lambda module: module.self.num_attention_heads,
        projection="output.dense",
    ),
)
