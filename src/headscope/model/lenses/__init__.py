"""What attention is looked at through: one lens a file. A lens turns what a site did into another map of its heads."""

from headscope.model.lenses.base import RANK, ROWS, SIGN, Lens
from headscope.model.lenses.registry import LENSES, lens_named

__all__ = ["LENSES", "RANK", "ROWS", "SIGN", "Lens", "lens_named"]
