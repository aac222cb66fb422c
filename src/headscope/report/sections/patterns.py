"""How many maps are vertical, diagonal, both, blocks or none of these? Bars of shares, after Kovaleva's figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import MUTED, ON_DARK, ON_LIGHT, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import headed, heading_height, style
from headscope.report.section import Section
from headscope.report.study_access import grid_of, model_name, stacks_with
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
LEFT, RIGHT, BOTTOM, GAP, LEGEND, BAR = 0.95, 0.2, 0.45, 0.62, 0.28, 0.21


class Patterns(StudyFigure):
    """One panel a stack: the whole stack, then each layer."""

    statistics = tuple(f"pattern-{name}" for name in COLOURS)
    name = "patterns"
    title = "What the attention maps look like"
    caption = (
        "A bar is all maps (one for each head and text) of a layer, or of the whole stack at the top, divided by "
        "pattern: vertical maps have columns that stand out, diagonal ones a band, blocks stay within one of two texts."
    )

    def applies(self, study: Study) -> bool:
        return all(stacks_with(study, name) for name in self.statistics)

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, "pattern-heterogeneous")
        shares = [_shares(study, stack) for stack in stacks]
        subtitle = f"{model_name(study)} · share of maps, one for each head and text, by the rule's pattern"
        width = 6.4
        top = heading_height(width, subtitle) + LEGEND + 0.3
        heights = [len(bars) * BAR for bars in shares]
        height = top + sum(heights) + GAP * (len(stacks) - 1) + BOTTOM
        with style():
            fig = headed(width, height, self.title, subtitle)
            y = top
            for stack, bars, tall in zip(stacks, shares, heights, strict=True):
                bounds = (
                    LEFT / width,
                    1 - (y + tall) / height,
                    (width - LEFT - RIGHT) / width,
                    tall / height,
                )
                ax = fig.add_axes(bounds)
                _draw_bars(ax, bars)
                ax.set_title(plain(stack, 40), fontweight="bold", pad=5)
                y += tall + GAP
            handles, labels = ax.get_legend_handles_labels()
            where = (LEFT / width, 1 - (top - 0.3) / height)
            fig.legend(handles, labels, loc="lower left", bbox_to_anchor=where, ncols=5, **_LEGEND)
            ax.set_xlabel("share of maps")
            return fig


_LEGEND = {
    "frameon": False,
    "fontsize": 7.5,
    "handlelength": 0.9,
    "columnspacing": 1.1,
    "borderpad": 0.0,
}


def _shares(study: Study, stack: str) -> NDArray[np.float64]:
    """[bar, pattern]: the mean over all heads of the stack, then over those of each layer; NaN without maps."""
    grids = np.stack([grid_of(study, f"pattern-{name}", stack) for name in COLOURS], axis=-1)
    return np.stack([_mean(heads) for heads in (grids.reshape(-1, len(COLOURS)), *grids)])


def _mean(heads: NDArray[np.float64]) -> NDArray[np.float64]:
    counts = np.isfinite(heads).sum(axis=0)
    means: NDArray[np.float64] = np.full(heads.shape[1], np.nan)
    np.divide(np.nansum(heads, axis=0), counts, out=means, where=counts > 0)
    return means


def _draw_bars(ax: Axes, bars: NDArray[np.float64]) -> None:
    rows = np.arange(len(bars), dtype=float)
    rows[0] -= 0.25  # the whole stands apart
    start = np.zeros(len(bars))
    for i, (name, colour) in enumerate(COLOURS.items()):
        share = np.nan_to_num(bars[:, i])
        ax.barh(
            rows,
            share,
            left=start,
            height=0.78,
            color=colour,
            label=HEADINGS.get(name, name),
            linewidth=0,
        )
        dark = name in ("vertical", "block", "diagonal")
        for row, value, x in zip(rows, share, start, strict=True):
            if value >= 0.06:
                text = f"{value:.2f}".removeprefix("0")
                ink = ON_DARK if dark else ON_LIGHT
                ax.text(x + value / 2, row, text, ha="center", va="center", fontsize=6.5, color=ink)
        start += share
    ax.set(xlim=(0, 1), ylim=(len(bars) - 0.5, -0.75))
    ax.set_yticks(rows, ["all layers", *(f"layer {i}" for i in range(len(bars) - 1))])
    ax.tick_params(axis="y", length=0, labelcolor=MUTED)
    ax.spines[:].set_visible(False)


SECTION = Section(
    figures={35: Patterns},
)
