"""ALBERT: all layers share one attention module (or a few); every call of it is a site of its own.

Layers are counted by calls. Ablating head 3.2 changes only the fourth call. Pruning removes a head from the shared
weights, and so from all layers that use them.
"""

from headscope.model.families.family import Family, encoder, encoder_layers

ALBERT = Family(model_types=("albert",), layers=encoder_layers, stack=encoder)
