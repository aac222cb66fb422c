"""ALBERT: one module (or a few) called again and again; every call is a site of its own.

The n-th call is layer n: pruning a head of the shared weights removes it from all layers; ablating 3.2 changes only
the fourth call.
"""

from headscope.model.families.family import Family, encoder, encoder_layers

ALBERT = Family(model_types=("albert",), layers=encoder_layers, stack=encoder)
