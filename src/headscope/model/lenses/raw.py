"""The raw lens: attention weights, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from headscope.model.attention import Attention
from headscope.model.lenses._base import ROWS, SIGN, HeadMaps, Lens

if TYPE_CHECKING:
    from headscope.model.one_input import OneInput


class RawLens(Lens):
    name = "raw"
    gives = frozenset({ROWS, SIGN})
    how = (
        "Attention weights: how a token distributes its attention; each row sums to 1. "
        "They show where a head reads, not whether it matters."
    )

    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        return attention

    def draw(self, text: OneInput) -> HeadMaps:
        return HeadMaps(text.weights, self.how, shares=True)
