"""How sure is each head, and only of special tokens? Two grids on one scale, after Song's poster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.data_source import Source
from headscope.report.scale import scale_of
from headscope.report.sections.heat_map import Panel, draw_panels
from headscope.report.study_access import grid_of, model_name, stacks_with
from headscope.report.text import slug

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 30
WITH, WITHOUT = "confidence", "confidence-content"


@dataclass(frozen=True)
class Confidence:
    """The two confidences of one stack side by side."""

    stack: str
    name: str
    title: str = "Confidence with and without special tokens"
    caption: str = (
        "A cell is the mean of the largest attention weight in each row; a head that is dark on the left "
        "and pale on the right spends its attention on special tokens."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return all(self.stack in stacks_with(study, statistic) for statistic in (WITH, WITHOUT))

    def source(self, study: Study) -> Source:
        return Source("heads", (WITH, WITHOUT))

    def draw(self, study: Study) -> Figure:
        grids = [grid_of(study, statistic, self.stack) for statistic in (WITH, WITHOUT)]
        scale = scale_of(WITH, np.concatenate([grid.ravel() for grid in grids]))
        panels = [Panel("all tokens", grids[0]), Panel("content only", grids[1])]
        subtitle = (
            f"{model_name(study)}, {self.stack} · mean of the largest attention weight in each row"
        )
        return draw_panels(panels, scale, self.title, subtitle)


def drawings(study: Study) -> Iterator[Confidence]:
    for stack in stacks_with(study, WITH):
        yield Confidence(stack, f"confidence-{slug(stack)}")
