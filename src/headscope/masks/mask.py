"""A mask: which position may attend to which, at any length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor

from headscope.heads import Head, Site


@dataclass(frozen=True)
class Mask:
    """Which position may attend to which, at any length.

    make   from a length and a site to bool [head, position, position], or [1, …] where all heads are alike
    per    what has a mask of its own: the model, each layer or each head
    check  refuses a model that the mask is not for
    """

    name: str
    make: Callable[[int, Site | None], Tensor]
    per: str = "model"
    check: Callable[[Iterable[Head]], None] = lambda heads: None

    def at(self, length: int, site: Site | None = None) -> Tensor:
        """Bool [head or 1, length, length]: True where the row's position may attend to the column's."""
        return self.make(length, site)
