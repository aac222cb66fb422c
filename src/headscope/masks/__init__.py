"""Which positions may attend to which: patterns by name, put on a model."""

from headscope.masks.mask_edit import Masked
from headscope.masks.mask_spec import read_mask, resolve_mask, sparsity
from headscope.masks.patterns import Mask

__all__ = ["Mask", "Masked", "read_mask", "resolve_mask", "sparsity"]
