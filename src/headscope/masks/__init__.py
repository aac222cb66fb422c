"""Masks: which positions may attend to which; named patterns, files, and the edit that applies them."""

from headscope.masks.mask_edit import Masked
from headscope.masks.mask_spec import read_mask, resolve_mask, sparsity
from headscope.masks.patterns import Mask

__all__ = ["Mask", "Masked", "read_mask", "resolve_mask", "sparsity"]
