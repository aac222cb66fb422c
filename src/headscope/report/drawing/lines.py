"""Lines by layer in a few panels, with bands for intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from headscope.report.drawing.palette import MUTED, SERIES
from headscope.report.drawing.sheet import LEAST_WIDTH, Panels
from headscope.report.drawing.style import draw_rules, whole_numbers
from headscope.report.study_access import stacks_of
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

PANELS = Panels(
    wide=2.05, tall=1.75, left=0.62, right=0.15, bottom=0.52, above=0.65, gap_x=0.62, gap_y=0.62
)
TICKS = [factor * 10.0**power for power in range(-6, 6) for factor in (1, 2, 5)]
MOST_TICKS, FEWEST_TICKS = 8, 4
LETTER = 0.085  # how wide a letter of the legend is


@dataclass(frozen=True)
class Line:
    """By layer: (layer, value, low, high) each; low and high are NaN without an interval."""

    points: Sequence[tuple[int, float, float, float]]


@dataclass(frozen=True)
class Lines:
    """One panel: its lines by label.

    is_ratio   on a logarithmic axis, with a rule at 1
    threshold  of a ratio: drawn as a broken line with its number, and always in sight
    """

    heading: str
    unit: str
    lines: Mapping[str, Line]
    is_ratio: bool = False
    threshold: float | None = None


def draw_lines(rows: Sequence[Sequence[Lines]], title: str, subtitle: str) -> Figure:
    """Rows of panels; the legend is shared, and a label has one colour everywhere."""
    labels = list(dict.fromkeys(label for row in rows for panel in row for label in panel.lines))
    colours = {label: SERIES[i % len(SERIES)] for i, label in enumerate(labels)}
    columns = max(len(row) for row in rows)
    legend = PANELS.left + sum(LETTER * len(label) + 0.5 for label in labels)
    handles: dict[str, Artist] = {}
    with PANELS.open(title, subtitle, len(rows), columns, max(legend, LEAST_WIDTH)) as sheet:
        for r, row in enumerate(rows):
            for c, panel in enumerate(row):
                ax = sheet.add_panel(r, c)
                handles |= _draw(ax, panel, colours)
                if r == len(rows) - 1:
                    ax.set_xlabel("layer")
                if c and panel.unit == row[c - 1].unit:
                    ax.set_ylabel("log scale" if panel.is_ratio else "")
        anchor = sheet.point(PANELS.left - 0.1, -0.58)
        spaces: dict[str, Any] = {"columnspacing": 1.4, "handlelength": 1.4, "frameon": False}
        spaces |= {"loc": "upper left", "bbox_to_anchor": anchor, "ncols": len(handles)}
        sheet.figure.legend(list(handles.values()), list(handles), **spaces)
        return sheet.figure


def _draw(ax: Axes, panel: Lines, colours: Mapping[str, str]) -> dict[str, Artist]:
    handles: dict[str, Artist] = {}
    layers = [layer for line in panel.lines.values() for layer, *_ in line.points]
    floor = 1e-6 if panel.is_ratio else -np.inf
    for label, line in panel.lines.items():
        across, value, low, high = np.array(line.points, dtype=float).T
        colour = colours[label]
        (handles[label],) = ax.plot(across, value, "o-", color=colour, linewidth=1.8, markersize=3)
        low = np.maximum(low, floor)
        ax.fill_between(across, low, high, color=colour, alpha=0.18, linewidth=0)
    if panel.is_ratio:
        _make_logarithmic(ax, panel.threshold)
    ax.set_title(panel.heading, fontweight="bold")
    ax.set_ylabel(f"{panel.unit} (log scale)" if panel.is_ratio else panel.unit)
    ax.set_xlim(min(layers) - 0.5, max(layers) + 0.5)
    whole_numbers(ax.xaxis, 8)
    draw_rules(ax, "y")
    return handles


def _make_logarithmic(ax: Axes, threshold: float | None) -> None:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, at least four; rules at 1 and the threshold."""
    ax.set_yscale("log")
    ax.axhline(1.0, color=MUTED, linewidth=0.8, zorder=1)
    bottom, above = ax.get_ylim()
    bottom, above = min(bottom, 0.9, (threshold or 1.0) / 1.3), max(above, 1.3)
    while len(_ticks(bottom, above)) < FEWEST_TICKS:
        bottom, above = bottom / 1.3, above * 1.1
    ax.set_ylim(bottom, above)
    ticks = _ticks(bottom, above)
    if len(ticks) > MOST_TICKS:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.yaxis.set_minor_locator(LogLocator(subs=range(2, 10)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    if threshold is not None:
        ax.axhline(threshold, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        text, left_edge = f"small: below {threshold:g}", ax.get_yaxis_transform()
        ax.text(0.01, threshold, text, transform=left_edge, ha="left", va="bottom", fontsize=6.5)


def _ticks(bottom: float, above: float) -> list[float]:
    return [tick for tick in TICKS if bottom <= tick <= above]


def points_of(table: pd.DataFrame) -> list[tuple[int, float, float, float]]:
    """The rows of a table by layer as the points of a line."""
    return list(table[["layer", "value", "low", "high"]].itertuples(index=False, name=None))


def heading_of(study: Study, stack: str, heading: str) -> str:
    """The heading of a panel, with the stack if the study has several."""
    return heading if len(stacks_of(study)) == 1 else f"{plain(stack, 12)}: {heading}"
