"""Statistics by layer, as in Clark et al. (2019): every head a dot, the layer's mean a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import RULE, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.style import draw_rules, whole_numbers
from headscope.report.scale import title_of
from headscope.report.study_access import grid_of, mean_over, model_name, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

PANELS = Panels(
    wide=2.05, tall=1.75, left=0.62, right=0.15, bottom=0.52, above=0.32, gap_x=0.22, gap_y=0.62
)


def draw_layers(
    study: Study,
    statistics: tuple[str, ...],
    headings: Mapping[str, str],
    title: str,
    unit: str,
    most: float | None,
) -> Figure:
    """One row of panels a stack, one panel a statistic; the other panels' means stay in sight as grey lines.

    most   the top of the vertical axis; None for the largest value
    """
    grids = {
        (stack, name): grid_of(study, name, stack)
        for name in statistics
        for stack in stacks_with(study, name)
    }
    present = list(dict.fromkeys(name for _, name in grids))
    stacks = list(dict.fromkeys(stack for stack, _ in grids))
    top_value = most or 1.06 * max(float(np.nanmax(grid)) for grid in grids.values())
    subtitle = f"{model_name(study)} · a dot is a head, the line joins the means of layers"
    if len(present) > 1:
        subtitle += "; grey: lines of the other panels"
    with PANELS.open(title, subtitle, len(stacks), len(present)) as sheet:
        for row, stack in enumerate(stacks):
            means = {name: mean_over(grid, 1) for (of, name), grid in grids.items() if of == stack}
            for name in means:
                column = present.index(name)
                ax = sheet.add_panel(row, column)
                for other, mean in means.items():
                    if other != name:
                        ax.plot(mean, color=RULE, linewidth=1.1, zorder=1)
                _draw_panel(ax, grids[stack, name], means[name], SERIES[column % len(SERIES)])
                ax.set_title(headings.get(name, title_of(name)), fontweight="bold")
                ax.set_ylim(-0.03 * top_value, top_value * 1.03)
                if row == len(stacks) - 1:
                    ax.set_xlabel("layer")
                if name == next(iter(means)):
                    ax.set_ylabel(unit if len(stacks) == 1 else f"{plain(stack, 12)}: {unit}")
                else:
                    ax.tick_params(labelleft=False)
        return sheet.figure


def _draw_panel(
    ax: Axes, grid: NDArray[np.float64], mean: NDArray[np.float64], colour: str
) -> None:
    layers, heads = grid.shape
    across = np.repeat(np.arange(layers), heads)
    size = 15 if layers <= 12 else 8
    ax.scatter(across, grid.ravel(), s=size, color=colour, alpha=0.5, linewidths=0, zorder=2)
    marker: dict[str, Any] = {"marker": "o", "markersize": 3 if layers <= 12 else 0}
    ax.plot(mean, color=colour, linewidth=2, zorder=3, **marker)
    ax.set_xlim(-0.5, layers - 0.5)
    whole_numbers(ax.xaxis, 12 if layers <= 12 else 8)
    draw_rules(ax, "y")
