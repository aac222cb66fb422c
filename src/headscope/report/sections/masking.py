"""How good is the model without one of its heads? A histogram over heads, after Michel's figure 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import METRIC
from headscope.report.drawing.palette import INK, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    draw_legend_below,
    draw_rules,
    headed,
    heading_height,
    style,
    whole_numbers,
)
from headscope.report.section import Section
from headscope.report.sections.ablation import metric_of, stars_of, task_of
from headscope.report.study_access import grid_of, model_name, recorded, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

BINS = 30
NOTHING = 1e-9  # what rounding leaves of no change
WIDTH, LEFT, RIGHT, BOTTOM, PANEL, GAP = 6.4, 0.62, 0.2, 0.85, 1.45, 0.42


class Masking(StudyFigure):
    """A panel a stack, one axis for all."""

    statistics = (METRIC,)
    name = "masking"
    title = "The model without one head"
    caption = (
        "How many heads (up) leave the model at which metric (across) when each is removed alone. The line is the "
        "intact model: left of it the model is worse without the head, right of it better; the bar on it: no or almost "
        "no change. In full colour: p (Holm), corrected for testing all heads, is below 0.05."
    )

    def applies(self, study: Study) -> bool:
        """Not after a race, where few heads have a metric."""
        known = study.heads.loc[study.heads["statistic"] == METRIC, "value"].notna()
        return bool(known.mean() > 0.5) and _intact(study) is not None

    def draw(self, study: Study) -> Figure:
        intact = _intact(study)
        assert intact is not None
        stacks = stacks_with(study, METRIC)
        changes = {stack: grid_of(study, METRIC, stack) for stack in stacks}
        all_changes = np.concatenate([grid[np.isfinite(grid)] for grid in changes.values()])
        edges = intact + bins_of(all_changes)
        worse, better = int((all_changes < -NOTHING).sum()), int((all_changes > NOTHING).sum())
        subtitle = (
            f"{model_name(study)}, {task_of(study)} · {metric_of(study)} with each of {len(all_changes)} heads removed "
            f"alone: worse for {worse}, the same for {len(all_changes) - worse - better}, better for {better}"
        )
        with style():
            top = heading_height(WIDTH, subtitle) + 0.46
            height = top + len(stacks) * (PANEL + GAP) - GAP + BOTTOM
            fig = headed(WIDTH, height, self.title, subtitle)
            for row, stack in enumerate(stacks):
                up = height - top - row * (PANEL + GAP) - PANEL
                size = ((WIDTH - LEFT - RIGHT) / WIDTH, PANEL / height)
                ax = fig.add_axes((LEFT / WIDTH, up / height, *size))
                _draw_stack(ax, intact + changes[stack], stars_of(study, METRIC, stack), edges)
                ax.axvline(intact, color=SERIES[1], linewidth=1.5, zorder=3)
                if row == 0:
                    _name_line(ax, intact, edges)
                if len(stacks) > 1:
                    _name_panel(ax, stack, intact, edges)
                ax.tick_params(labelbottom=row == len(stacks) - 1)
            ax.set_xlabel(f"{metric_of(study)} without the head")
            handles, labels = fig.axes[0].get_legend_handles_labels()
            draw_legend_below(fig, handles, labels, 2)
            return fig


def bins_of(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of equal bins that hold all changes, 0 in the middle of one: no change is neither worse nor better."""
    least, most = min(float(changes.min()), 0.0), max(float(changes.max()), 0.0)
    step = (most - least or 1e-3) / BINS
    below, above = (int(np.floor(abs(end) / step + 0.5 + 1e-9)) + 1 for end in (least, most))
    return np.asarray(step * (np.arange(-below, above + 2) - 0.5), dtype=np.float64)


def _intact(study: Study) -> float | None:
    metric = recorded(study.record, "importance", "metric")
    value = recorded(study.record, "importance", "intact", metric, "value") if metric else None
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None


def _draw_stack(
    ax: Axes, masked: NDArray[np.float64], starred: NDArray[np.bool_], edges: NDArray[np.float64]
) -> None:
    there = np.isfinite(masked)
    sure, unsure = (np.histogram(masked[there & one], edges)[0] for one in (starred, ~starred))
    left, width = edges[:-1], np.diff(edges)
    ax.bar(
        left,
        sure,
        width,
        align="edge",
        color=SERIES[0],
        linewidth=0,
        label="significant change",
        zorder=2,
    )
    ax.bar(
        left,
        unsure,
        width,
        bottom=sure,
        align="edge",
        color=SERIES[0],
        alpha=0.4,
        linewidth=0,
        label="not significant",
        zorder=2,
    )
    ax.set(
        xlim=(edges[0], edges[-1]),
        ylim=(0, 1.06 * max(int((sure + unsure).max()), 1)),
        ylabel="heads",
    )
    whole_numbers(ax.yaxis, 5)
    draw_rules(ax, "y")


def _name_line(ax: Axes, intact: float, edges: NDArray[np.float64]) -> None:
    share = (intact - edges[0]) / (edges[-1] - edges[0])
    side = "left" if share < 0.15 else "right" if share > 0.85 else "center"
    ax.annotate(
        f"intact {intact:.4g}",
        (intact, 1.0),
        (0, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=7.5,
        color=INK,
    )


def _name_panel(ax: Axes, stack: str, intact: float, edges: NDArray[np.float64]) -> None:
    """In the corner that is further from the line: most heads are near it."""
    is_left = intact > (edges[0] + edges[-1]) / 2
    ax.text(
        0.01 if is_left else 0.99,
        0.97,
        plain(stack, 20),
        transform=ax.transAxes,
        ha="left" if is_left else "right",
        va="top",
        fontweight="bold",
        fontsize=8.5,
    )


SECTION = Section(figures={47: Masking})
