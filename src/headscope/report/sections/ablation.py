"""What does each head's removal change? Layers x heads, stars where it is significant, as in Song's figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.significance import ALPHA
from headscope.report.drawing.data_source import Source
from headscope.report.drawing.palette import ON_DARK, ON_LIGHT
from headscope.report.drawing.style import style
from headscope.report.scale import scale_of, title_of
from headscope.report.sections.heat_map import Panel, draw_panels
from headscope.report.study_access import grid_of, model_name, recorded, shape_of, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

ORDER = 44
TABLE = "significance"
SMALL = 0.01  # below, values are shown in thousandths: they would not fit into their cells
WORSE = {
    LOSS: "above 0 (orange): worse without the head",
    METRIC: "below 0 (orange): worse without the head",
}


@dataclass(frozen=True)
class Ablation:
    """The change by removing each head, all stacks side by side on one scale with 0 in the middle."""

    statistic: str
    name: str
    is_raster: bool = False

    @property
    def title(self) -> str:
        return title_of(self.statistic)

    @property
    def caption(self) -> str:
        return (
            f"Ablated minus intact; {WORSE[self.statistic]}. A star means that p (Holm), corrected for "
            f"testing all heads, is below {ALPHA:g}, nothing else: a pale cell may have one and a dark cell none. "
            "Rows are layers, 0 (next to the input) at the top; columns are heads; grey: no value."
        )

    def applies(self, study: Study) -> bool:
        return bool(stacks_with(study, self.statistic))

    def source(self, study: Study) -> Source:
        return Source("heads", (self.statistic,))

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, self.statistic)
        grids = [grid_of(study, self.statistic, stack) for stack in stacks]
        values = np.concatenate([grid.ravel() for grid in grids])
        factor = 1000 if np.nanmax(np.abs(values)) < SMALL else 1
        scale = scale_of(self.statistic, factor * values)
        unit = f"change of {metric_of(study) if self.statistic == METRIC else 'loss'}"  # not all losses are in nats
        if factor > 1:
            unit = f"{unit}, in thousandths"
        panels = [Panel(stack, factor * grid) for stack, grid in zip(stacks, grids, strict=True)]
        subtitle = f"{model_name(study)}, {task_of(study)} · {WORSE[self.statistic]}"
        starred = {stack: stars_of(study, self.statistic, stack) for stack in stacks}
        if TABLE in study.tables:
            count = sum(int(one.sum()) for one in starred.values())
            tested = int(np.isfinite(values).sum())
            subtitle += (
                f" · ★ significant ({ALPHA:g}, Holm over {tested} heads), nothing else: {count}"
            )
        figure = draw_panels(panels, scale, self.title, subtitle, unit)
        for ax, stack in zip(figure.axes, stacks, strict=False):
            _draw_stars(ax, starred[stack])
        return figure


def drawings(study: Study) -> Iterator[Ablation]:
    for statistic in (LOSS, METRIC):
        yield Ablation(statistic, statistic)


def stars_of(study: Study, statistic: str, stack: str) -> NDArray[np.bool_]:
    """[layer, head]: whether the change is significant; false where there was no test."""
    found = np.zeros(shape_of(study, stack), dtype=bool)
    table = study.tables.get(TABLE)
    if table is not None and len(table):
        rows = table[
            (table["stack"] == stack)
            & (table["statistic"] == statistic)
            & table["is_significant"].eq(True)
        ]
        found[rows["layer"].to_numpy(int), rows["head"].to_numpy(int)] = True
    return found


def task_of(study: Study) -> str:
    """The task as recorded, and how heads were ablated where that is not by removing them."""
    task = plain(recorded(study.record, "importance", "task") or "a task", 40)
    mode = recorded(study.record, "importance", "mode")
    return f"{task}, {plain(mode, 20)} ablation" if mode not in (None, "zero") else task


def metric_of(study: Study) -> str:
    """What the task's metric is called."""
    return plain(recorded(study.record, "importance", "metric") or "the metric", 40)


def _draw_stars(ax: Axes, starred: NDArray[np.bool_]) -> None:
    """In the corner of a cell that has its value, else in the middle; dark with a pale rim, legible on any colour."""
    layers, heads = np.nonzero(starred)
    right, down, size = (0.83, 0.18, 38) if ax.texts else (0.5, 0.5, 34)
    with style():
        ax.scatter(
            heads + right,
            layers + down,
            s=size,
            marker="*",
            color=ON_LIGHT,
            edgecolors=ON_DARK,
            linewidths=0.5,
            zorder=5,
            clip_on=False,
            label="significant",
        )
