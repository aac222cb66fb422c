"""How broad is attention in each layer? Entropy over all tokens, and of the first token alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.report.drawing.data_source import Source
from headscope.report.drawing.layers import draw_layers
from headscope.report.study_access import stacks_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 20
HEADINGS = {"entropy": "from all tokens", "cls-entropy": "from the classification token"}


@dataclass(frozen=True)
class LayerEntropy:
    name: str = "layer-entropy"
    title: str = "Entropy of attention, by layer"
    caption: str = (
        "Each dot is a head and the line is the mean of its layer: near 0 a head looks at one token, high up "
        "it spreads over many."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return any(stacks_with(study, name) for name in HEADINGS)

    def source(self, study: Study) -> Source:
        return Source("heads", tuple(HEADINGS))

    def draw(self, study: Study) -> Figure:
        return draw_layers(
            study, tuple(HEADINGS), HEADINGS, self.title, "entropy in nats", most=None
        )


def drawings(study: Study) -> Iterator[LayerEntropy]:
    yield LayerEntropy()
