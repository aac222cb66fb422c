"""DistilBERT: BERT with names of its own."""

from headscope.model.families.family import Family, encoder, encoder_layers

DISTILBERT = Family(model_types=("distilbert",), layers=encoder_layers, stack=encoder)
