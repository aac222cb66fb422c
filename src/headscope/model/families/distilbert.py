"""DistilBERT: a smaller BERT, whose modules have different names."""

from headscope.model.families.family import Family, encoder, encoder_layers

DISTILBERT = Family(model_types=("distilbert",), layers=encoder_layers, stack=encoder)
