"""Metric of the model without one of its heads: a histogram over heads, after Michel's figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.ablation_results import METRIC
from headscope.report.drawing.palette import SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    draw_legend_below,
    draw_rules,
    whole_numbers,
    write_above,
)
from headscope.report.section import Section
from headscope.report.sections.ablation import metric_of, stars_of, task_of
from headscope.report.study_access import entry_of, grid_of, model_name, rows_for, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

BINS = 30
NOTHING = 1e-9  # a smaller change is a rounding error
PANELS = Panels(wide=5.58, tall=1.45, left=0.62, right=0.2, bottom=0.85, above=0.46, gap_y=0.42)


class Masking(StudyFigure):
    """A panel for each stack, one axis for all."""

    statistics = (METRIC,)
    name = "masking"
    title = "The metric with one head ablated"
    caption = (
        "Histogram of heads by the metric of the model with that head ablated. The vertical line is the unpruned "
        "model: without the heads on its left the model is worse, without those on its right better; the bar on the "
        "line is almost no change. Full colour: significant, that is p (Holm), corrected for testing all heads, is "
        "below 0.05. Pale: not significant."
    )

    def applies(self, study: Study) -> bool:
        """Not after a sequential test, in which few heads have a metric."""
        has_metric = rows_for(study, METRIC)["value"].notna()
        return bool(has_metric.mean() > 0.5) and _intact(study) is not None

    def draw(self, study: Study) -> Figure:
        intact = _intact(study)
        assert intact is not None
        stacks = stacks_with(study, METRIC)
        changes = {stack: grid_of(study, METRIC, stack) for stack in stacks}
        all_changes = np.concatenate([grid[np.isfinite(grid)] for grid in changes.values()])
        edges = intact + bins_of(all_changes)
        worse, better = int((all_changes < -NOTHING).sum()), int((all_changes > NOTHING).sum())
        subtitle = (
            f"{model_name(study)}, {task_of(study)} · {metric_of(study)} with each of {len(all_changes)} heads ablated "
            f"alone: worse for {worse}, the same for {len(all_changes) - worse - better}, better for {better}"
        )
        with PANELS.open(self.title, subtitle, len(stacks), 1) as sheet:
            for row, stack in enumerate(stacks):
                ax = sheet.add_panel(row, 0)
                _draw_stack(ax, intact + changes[stack], stars_of(study, METRIC, stack), edges)
                ax.axvline(intact, color=SERIES[1], linewidth=1.5, zorder=3)
                if row == 0:
                    share = (intact - edges[0]) / (edges[-1] - edges[0])
                    side = "left" if share < 0.15 else "right" if share > 0.85 else "center"
                    write_above(ax, intact, f"unpruned {intact:.4g}", side)
                if len(stacks) > 1:
                    _name_panel(ax, stack, intact, edges)
                ax.tick_params(labelbottom=row == len(stacks) - 1)
            ax.set_xlabel(f"{metric_of(study)} without the head")
            draw_legend_below(sheet.figure, 2)
            return sheet.figure


def bins_of(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of equal bins that hold all changes. 0 is in the middle of one, since it is neither worse nor better."""
    least, most = min(float(changes.min()), 0.0), max(float(changes.max()), 0.0)
    step = (most - least or 1e-3) / BINS
    below, above = (int(np.floor(abs(end) / step + 0.5 + 1e-9)) + 1 for end in (least, most))
    return np.asarray(step * (np.arange(-below, above + 2) - 0.5), dtype=np.float64)


def _intact(study: Study) -> float | None:
    metric = entry_of(study.record, "importance", "metric")
    value = entry_of(study.record, "importance", "intact", metric, "value") if metric else None
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None


def _draw_stack(
    ax: Axes, masked: NDArray[np.float64], starred: NDArray[np.bool_], edges: NDArray[np.float64]
) -> None:
    finite = np.isfinite(masked)
    sure, unsure = (np.histogram(masked[finite & some], edges)[0] for some in (starred, ~starred))
    left, width = edges[:-1], np.diff(edges)
    bars: dict[str, Any] = {"align": "edge", "color": SERIES[0], "linewidth": 0, "zorder": 2}
    ax.bar(left, sure, width, label="significant change", **bars)
    ax.bar(left, unsure, width, bottom=sure, alpha=0.4, label="not significant", **bars)
    most = max(int((sure + unsure).max()), 1)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.06 * most), ylabel="heads")
    whole_numbers(ax.yaxis, 5)
    draw_rules(ax, "y")


def _name_panel(ax: Axes, stack: str, intact: float, edges: NDArray[np.float64]) -> None:
    """In the corner that is further from the line: most heads are near it."""
    x, side = (0.01, "left") if intact > (edges[0] + edges[-1]) / 2 else (0.99, "right")
    text: dict[str, Any] = {"va": "top", "fontweight": "bold", "fontsize": 8.5}
    ax.text(x, 0.97, plain(stack, 20), transform=ax.transAxes, ha=side, **text)


SECTION = Section(figures={47: Masking})
