"""A heat map for each statistic: layers down, heads across."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.glossary import DEFINITIONS
from headscope.report.drawing.heat_maps import Panel, draw_panels
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.scale import scale_of, sentence_of, title_of
from headscope.report.section import Section
from headscope.report.study_access import grid_of, model_name, stacks_with, statistics_of
from headscope.report.text import slug
from headscope.study.schema.names import StatisticName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

DRAWN_TOGETHER = ("js-", "pattern-")  # statistics of a kind that share one figure
DRAWN_WITH_STARS = (LOSS, METRIC)
# If there is exact removal, these are drawn against it.
GRADIENTS = tuple(name for name in DEFINITIONS if name.startswith("gradient"))


class HeatMap(StudyFigure):
    """One statistic over all heads, its stacks side by side on one colour scale."""

    def __init__(self, statistic: str, name: str, definition: str = "") -> None:
        self.statistic, self.name, self.definition = statistic, name, definition
        self.statistics = (statistic,)
        self.title = title_of(statistic)
        means = f"{definition.rstrip('.')}. " if definition else ""
        grey = "closed" if StatisticName.parse(statistic).is_gate else "no value"
        self.caption = (
            f"{means}Rows are layers (0 is next to the input), columns are heads. Grey: {grey}."
        )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[HeatMap]:
        used: set[str] = set()
        elsewhere = (*DRAWN_WITH_STARS, *(GRADIENTS if stacks_with(study, LOSS) else ()))
        for statistic in statistics_of(study):
            is_together = statistic.startswith(DRAWN_TOGETHER)
            if is_together or statistic in elsewhere or StatisticName.parse(statistic).lens:
                continue
            stem = name = f"heat-{slug(statistic)}"
            # Two statistics may differ only in characters that a file name cannot hold.
            while name in used:
                name = f"{stem}-{len(used)}"
            used.add(name)
            yield cls(statistic, name, sentence_of(statistic))

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, self.statistic)
        grids = [grid_of(study, self.statistic, stack) for stack in stacks]
        scale = scale_of(self.statistic, np.concatenate([grid.ravel() for grid in grids]))
        panels = [Panel(stack, grid) for stack, grid in zip(stacks, grids, strict=True)]
        has_title = self.title != self.statistic
        subtitle = f"{self.statistic} · {model_name(study)}" if has_title else model_name(study)
        if self.definition:
            subtitle += f" · {self.definition}"
        return draw_panels(panels, scale, self.title, subtitle)


SECTION = Section(figures={90: HeatMap})  # after the figures of a topic
