"""Layers x heads grids side by side on one colour scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.sheet import LEAST_WIDTH, open_sheet
from headscope.report.drawing.style import draw_grid
from headscope.report.scale import Scale
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

MOST_HEADS_WITH_VALUES = 16


@dataclass(frozen=True)
class Panel:
    """One layers x heads grid with a heading of its own."""

    heading: str
    grid: NDArray[np.float64]


def draw_panels(
    panels: list[Panel], scale: Scale, title: str, subtitle: str, unit: str | None = None
) -> Figure:
    """Grids side by side on one scale with one colour bar; the size follows the number of cells.

    unit  next to the colour bar, if it is not the scale's own
    """
    heads = [panel.grid.shape[1] for panel in panels]
    layers = max(panel.grid.shape[0] for panel in panels)
    prints_values = max(heads) <= MOST_HEADS_WITH_VALUES
    cell = 0.30 if prints_values else 0.17 if max(heads) <= 40 else 0.11
    left, gap, right, bottom = 0.55, 0.62, 0.85 if unit is None else 1.1, 0.48
    across = sum(heads) * cell + gap * (len(panels) - 1)
    width = max(left + across + right, LEAST_WIDTH)
    with open_sheet(title, subtitle, width, max(layers * cell, 0.9) + bottom, 0.28) as sheet:
        x = left
        for panel in panels:
            rows, columns = panel.grid.shape
            ax = sheet.add_axes(x, 0, columns * cell, rows * cell)
            draw_grid(ax, panel.grid, scale, prints_values=prints_values)
            heading = plain(panel.heading, max(int(columns * cell * 13), 12))
            ax.set_title(heading, fontweight="bold", pad=5)
            ax.set_xlabel("head", labelpad=2)
            if panel is panels[0]:
                ax.set_ylabel("layer", labelpad=3)
            x += columns * cell + gap
        tall = max(min(layers * cell, 2.6), 0.9)
        sheet.add_bar(left + across + 0.2, tall, scale, scale.unit if unit is None else unit)
        return sheet.figure
