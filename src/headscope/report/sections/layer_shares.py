"""Where does attention go that is not for words? Mass on special tokens and punctuation, by layer."""

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

ORDER = 10
HEADINGS = {
    "cls": "classification token",
    "sep": "separators",
    "first": "first token",
    "punctuation": '"." and ","',
    "special": "all special tokens",
}


@dataclass(frozen=True)
class LayerShares:
    name: str = "layer-shares"
    title: str = "Attention to special tokens and punctuation, by layer"
    caption: str = (
        "Each dot is a head and the line is the mean of its layer: the higher, the more of the attention "
        "goes to that kind of token."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return any(stacks_with(study, name) for name in HEADINGS)

    def source(self, study: Study) -> Source:
        return Source("heads", _names(study))

    def draw(self, study: Study) -> Figure:
        return draw_layers(
            study, _names(study), HEADINGS, self.title, "share of attention", most=1.0
        )


def _names(study: Study) -> tuple[str, ...]:
    """Without the first token where a model has a classification token, which is mostly the same one."""
    return tuple(name for name in HEADINGS if name != "first" or not stacks_with(study, "cls"))


def drawings(study: Study) -> Iterator[LayerShares]:
    yield LayerShares()
