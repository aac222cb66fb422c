"""Which positions may attend to which: named patterns, and masks from files."""

from headscope.masks.mask import Mask, read_mask, sparsity
from headscope.masks.masked import Masked

__all__ = ["Mask", "Masked", "read_mask", "sparsity"]
