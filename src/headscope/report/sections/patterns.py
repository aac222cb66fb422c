"""Shares of vertical, diagonal, block and other attention maps as bars, after Kovaleva's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import MUTED, ON_DARK, ON_LIGHT, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import draw_legend, write_in_cell
from headscope.report.section import Section
from headscope.report.study_access import grid_of, mean_over, model_name, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

COLOURS = {  # the last is not a pattern, and has a colour that says so
    "vertical": SERIES[0],
    "diagonal": SERIES[1],
    "vertical-diagonal": SERIES[3],
    "block": SERIES[2],
    "heterogeneous": "#b9c1c9",
}
HEADINGS = {"vertical-diagonal": "vertical + diagonal"}
WIDTH, LEFT, RIGHT, BOTTOM, GAP, BAR = 6.4, 0.95, 0.2, 0.45, 0.62, 0.21


class Patterns(StudyFigure):
    """A panel for each stack: a bar for the whole stack, then one for each layer."""

    statistics = tuple(f"pattern-{name}" for name in COLOURS)
    name = "patterns"
    title = "What the attention maps look like"
    caption = (
        "A bar shows the shares of the patterns among the maps of a layer, one map for each head and text; the bar at "
        "the top is for all layers. In a vertical map a few columns dominate, in a diagonal map a band along the "
        "diagonal. In a block map attention stays within one of two texts. A heterogeneous map is none of these."
    )

    def applies(self, study: Study) -> bool:
        return all(stacks_with(study, name) for name in self.statistics)

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, "pattern-heterogeneous")
        shares = [_shares(study, stack) for stack in stacks]
        subtitle = f"{model_name(study)} · shares of the patterns, which a rule assigns to each map"
        body = sum(len(bars) * BAR for bars in shares) + GAP * (len(stacks) - 1) + BOTTOM
        with open_sheet(self.title, subtitle, WIDTH, body, 0.58) as sheet:
            y = 0.0
            for stack, bars in zip(stacks, shares, strict=True):
                ax = sheet.add_axes(LEFT, y, WIDTH - LEFT - RIGHT, len(bars) * BAR)
                _draw_bars(ax, bars)
                ax.set_title(plain(stack, 40), fontweight="bold", pad=5)
                y += len(bars) * BAR + GAP
            handles, labels = ax.get_legend_handles_labels()
            options = {"ncols": 5, "handlelength": 0.9, "columnspacing": 1.1}
            entries = dict(zip(labels, handles, strict=True))
            draw_legend(sheet.figure, entries, sheet.point(LEFT, -0.3), **options)
            ax.set_xlabel("share of maps")
            return sheet.figure


def _shares(study: Study, stack: str) -> NDArray[np.float64]:
    """[bar, pattern]: the mean over all heads of the stack, then over the heads of each layer; NaN without maps."""
    grids = np.stack([grid_of(study, f"pattern-{name}", stack) for name in COLOURS], axis=-1)
    return np.stack([mean_over(heads, 0) for heads in (grids.reshape(-1, len(COLOURS)), *grids)])


def _draw_bars(ax: Axes, bars: NDArray[np.float64]) -> None:
    rows = np.arange(len(bars), dtype=float)
    rows[0] -= 0.25  # the whole stands apart
    start = np.zeros(len(bars))
    for i, (name, colour) in enumerate(COLOURS.items()):
        share, label = np.nan_to_num(bars[:, i]), HEADINGS.get(name, name)
        ax.barh(rows, share, left=start, height=0.78, color=colour, label=label, linewidth=0)
        ink = ON_DARK if name in ("vertical", "block", "diagonal") else ON_LIGHT
        for row, value, x in zip(rows, share, start, strict=True):
            if value >= 0.06:
                write_in_cell(ax, x + value / 2, row, f"{value:.2f}".removeprefix("0"), 6.5, ink)
        start += share
    ax.set(xlim=(0, 1), ylim=(len(bars) - 0.5, -0.75))
    ax.set_yticks(rows, ["all layers", *(f"layer {i}" for i in range(len(bars) - 1))])
    ax.tick_params(axis="y", length=0, labelcolor=MUTED)
    ax.spines[:].set_visible(False)


SECTION = Section(figures={35: Patterns})
