"""ModernBERT: fused projections and rotary positions. In most layers a mask limits attention to a window."""

from headscope.model.families.family import Family, encoder, encoder_layers

MODERNBERT = Family(model_types=("modernbert",), layers=encoder_layers, stack=encoder)
