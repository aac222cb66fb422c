"""ESM-2: protein encoders, one token a residue; queries are scaled before attention, which is therefore unscaled."""

from headscope.model.families.family import Family, encoder, encoder_layers

ESM = Family(
    model_types=("esm",), layers=encoder_layers, stack=encoder, counts_from_padding=("esm",)
)
