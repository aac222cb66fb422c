"""Confidence of each head with and without special tokens: two grids on one scale, after Song's poster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.heat_maps import Panel, draw_panels
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.scale import scale_of
from headscope.report.section import Section
from headscope.report.study_access import grid_of, model_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WITH, WITHOUT = "confidence", "confidence-content"


class ConfidenceFigure(StackFigure):
    """The two confidences of one stack side by side."""

    stem = "confidence"
    statistics = (WITH, WITHOUT)
    title = "Confidence with and without special tokens"
    caption = (
        "A cell is the largest attention weight of a query, averaged over queries; the right panel has "
        "only content: no special tokens as queries or keys. A head that is dark on the left and pale on the right "
        "attends to special tokens."
    )

    def draw(self, study: Study) -> Figure:
        grids = [grid_of(study, statistic, self.stack) for statistic in (WITH, WITHOUT)]
        scale = scale_of(WITH, np.concatenate([grid.ravel() for grid in grids]))
        panels = [Panel("all tokens", grids[0]), Panel("content only", grids[1])]
        subtitle = (
            f"{model_name(study)}, {self.stack} · largest attention weight of a query, averaged"
        )
        return draw_panels(panels, scale, self.title, subtitle)


SECTION = Section(figures={30: ConfidenceFigure})
