"""Vision transformers: tokens are patches of an image (the first is the classification token)."""

from headscope.model.families.family import Family, encoder, encoder_layers

VIT = Family(model_types=("vit",), layers=encoder_layers, stack=encoder, takes_text=False)
