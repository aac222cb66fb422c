"""ModernBERT: fused projections, rotary positions, most layers see only a window (their mask says so)."""

from headscope.model.families.family import Family, encoder, encoder_layers

MODERNBERT = Family(model_types=("modernbert",), layers=encoder_layers, stack=encoder)
