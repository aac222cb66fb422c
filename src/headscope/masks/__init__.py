"""Which positions may attend to which: patterns by name, put on a model."""

from headscope.masks.mask import Mask, met, read_mask, sparsity
from headscope.masks.masked import Masked

__all__ = ["Mask", "Masked", "met", "read_mask", "sparsity"]
