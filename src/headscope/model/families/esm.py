"""ESM-2: protein encoders with one token per residue. Queries are scaled before attention, so its scaling is 1."""

from headscope.model.families.family import Family, encoder, encoder_layers

ESM = Family(
    model_types=("esm",), layers=encoder_layers, stack=encoder, counts_from_padding=("esm",)
)
