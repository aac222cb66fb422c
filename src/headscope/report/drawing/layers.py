"""Statistics by layer, as in Clark's figures: every head a dot, the layer's mean a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import RULE, SERIES
from headscope.report.drawing.style import draw_rules, headed, heading_height, style, whole_numbers
from headscope.report.scale import title_of
from headscope.report.study_access import grid_of, model_name, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BOTTOM = 0.62, 0.15, 0.52
PANEL_WIDTH, PANEL_HEIGHT, GAP_X, GAP_Y = 2.05, 1.75, 0.22, 0.62


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
    present = [name for name in statistics if stacks_with(study, name)]
    stacks = list(dict.fromkeys(s for name in present for s in stacks_with(study, name)))
    grids = {
        (stack, name): grid_of(study, name, stack)
        for name in present
        for stack in stacks_with(study, name)
    }
    top_value = most or 1.06 * max(float(np.nanmax(grid)) for grid in grids.values())
    subtitle = f"{model_name(study)} · a dot is a head, the line is the mean of its layer"
    if len(present) > 1:
        subtitle += "; grey: the other panels' means"
    with style():
        columns, rows = len(present), len(stacks)
        width = MARGIN_LEFT + columns * PANEL_WIDTH + (columns - 1) * GAP_X + MARGIN_RIGHT
        width = max(width, 4.2)
        top = heading_height(width, subtitle) + 0.32
        height = top + rows * PANEL_HEIGHT + (rows - 1) * GAP_Y + MARGIN_BOTTOM
        fig = headed(width, height, title, subtitle)
        for row, stack in enumerate(stacks):
            means = {
                name: _layer_means(grids[stack, name]) for name in present if (stack, name) in grids
            }
            for column, name in enumerate(present):
                if name not in means:
                    continue
                x = MARGIN_LEFT + column * (PANEL_WIDTH + GAP_X)
                y = height - top - row * (PANEL_HEIGHT + GAP_Y) - PANEL_HEIGHT
                ax = fig.add_axes(
                    (x / width, y / height, PANEL_WIDTH / width, PANEL_HEIGHT / height)
                )
                for other, mean in means.items():
                    if other != name:
                        ax.plot(mean, color=RULE, linewidth=1.1, zorder=1)
                _draw_panel(ax, grids[stack, name], means[name], SERIES[column % len(SERIES)])
                heading = headings.get(name, title_of(name))
                ax.set_title(heading, fontweight="bold")
                ax.set_ylim(-0.03 * top_value, top_value * 1.03)
                if row == rows - 1:
                    ax.set_xlabel("layer")
                if x == MARGIN_LEFT or column == min(present.index(n) for n in means):
                    ax.set_ylabel(unit if len(stacks) == 1 else f"{plain(stack, 12)}: {unit}")
                else:
                    ax.tick_params(labelleft=False)
        return fig


def _layer_means(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the heads of each layer [layer]; NaN for a layer without a value."""
    counts = np.isfinite(grid).sum(axis=1)
    means: NDArray[np.float64] = np.full(len(grid), np.nan)
    np.divide(np.nansum(grid, axis=1), counts, out=means, where=counts > 0)
    return means


def _draw_panel(
    ax: Axes, grid: NDArray[np.float64], mean: NDArray[np.float64], colour: str
) -> None:
    layers, heads = grid.shape
    across = np.repeat(np.arange(layers), heads)
    size = 15 if layers <= 12 else 8
    ax.scatter(across, grid.ravel(), s=size, color=colour, alpha=0.5, linewidths=0, zorder=2)
    ax.plot(
        mean, color=colour, linewidth=2, marker="o", markersize=3 if layers <= 12 else 0, zorder=3
    )
    ax.set_xlim(-0.5, layers - 0.5)
    whole_numbers(ax.xaxis, 12 if layers <= 12 else 8)
    draw_rules(ax, "y")
