"""MPNet: a BERT with a bias of relative positions and a softmax of its own."""

from headscope.model.families.family import Family, encoder, encoder_layers
from headscope.model.tap import Tap

MPNET = Family(
    model_types=("mpnet",),
    layers=encoder_layers,
    stack=encoder,
    counts_from_padding=("mpnet",),
    tap=Tap("MPNetSelfAttention", "forward", lambda module: module.num_attention_heads, projection="o"),
)
