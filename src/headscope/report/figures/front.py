"""What is lost and gained as heads go: the metric on examples that nothing was chosen on, after Michel's figure 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.figures._palette import INK, MUTED, PAPER, RULE, SERIES
from headscope.report.figures._source import Source, table
from headscope.report.figures._style import headed, heading_height, style, whole_numbers
from headscope.report.grids import model_name, plain, recorded

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

ORDER = 20
WIDTH, LEFT, RIGHT, BOTTOM, PANEL, GAP = 6.4, 0.68, 0.2, 0.85, 1.9, 0.35


@dataclass(frozen=True)
class Front:
    """The metric above, the measured speed below, by heads removed, or by heads fixed."""

    name: str = "front"
    title: str = "What is lost and gained as heads go"
    across: str = "removed"
    part: str = "pruning"  # of the record
    ring: str = "cut"
    said_of_ring: str = "; the ring is the set that was cut"
    caption: str = (
        "Above: the metric with so many heads removed, on the split that was reported on (dots, with 95 % intervals) "
        "and on the one that was chosen on (line); the ring is the set that was cut. Filled dots are the front; a "
        "hollow one is dominated: another set is no larger, as good and no slower, and better in one of these. Below: "
        "how many times as fast as the whole model it is, measured on this machine, with 95 % intervals."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        table = study.tables.get(self.name)
        return table is not None and len(table) > 1

    def source(self, study: Study) -> Source:
        return table(self.name)

    def draw(self, study: Study) -> Figure:
        table = _sizes(study.tables[self.name], self.across)
        metric = plain(recorded(study.record, self.part, "metric") or "metric", 30)
        search = plain(recorded(study.record, self.part, "search") or "", 30)
        task = plain(recorded(study.record, self.part, "task") or "", 30)
        trained = (
            ", trained after every step" if recorded(study.record, self.part, "in_steps") else ""
        )
        subtitle = f"{model_name(study)}, {task}" + (
            f" · search: {search}{trained}" if search else ""
        )
        with style():
            top = heading_height(WIDTH, subtitle) + 0.2
            height = top + 2 * PANEL + GAP + BOTTOM
            fig = headed(WIDTH, height, self.title, subtitle)
            size = ((WIDTH - LEFT - RIGHT) / WIDTH, PANEL / height)
            above = fig.add_axes((LEFT / WIDTH, (height - top - PANEL) / height, *size))
            below = fig.add_axes((LEFT / WIDTH, BOTTOM / height, *size), sharex=above)
            for draw, rows in table[table["repair"] == ""].groupby("draw"):
                _draw_metric(above, rows, self.ring, is_first=draw == 0)
                _draw_speed(below, rows, is_first=draw == 0)
            mended = table[(table["repair"] != "") & (table["draw"] == 0)]
            for place, (repair, rows) in enumerate(mended.groupby("repair")):
                colour = SERIES[3 + place % (len(SERIES) - 3)]
                above.plot(
                    rows["removed"],
                    rows["metric"],
                    "--",
                    color=colour,
                    linewidth=1,
                    label=plain(repair, 20),
                )
                _draw_dots(above, rows, colour, size=4)
            above.set_ylabel(metric)
            above.tick_params(labelbottom=False)
            fastest = max(1.0, float((1 / table["time_low"]).max()))
            below.set(
                xlabel=f"heads {self.across}", ylabel="times as fast", ylim=(0, 1.1 * fastest)
            )
            whole_numbers(below.xaxis)
            handles, labels = above.get_legend_handles_labels()
            fig.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=7.5)
            return fig


FIXED = Front(
    "fixing",
    "What is lost and gained as heads are fixed",
    "fixed",
    "fixing",
    "saved",
    "; the ring is what was saved",
    "Above: the metric with so many heads that attend by fixed patterns, on the split that was reported on (dots, with "
    "95 % intervals) and on the one that was chosen on (line); the ring is what was saved. Below: how many "
    "times as fast as the whole model it is without their queries and keys, measured on this machine.",
)


def drawings(study: Study) -> Iterator[Front]:
    for one in (Front(), FIXED):
        table = study.tables.get(one.name)
        is_ringed = table is not None and bool(table["is_chosen"].any())
        yield one if is_ringed else replace(one, caption=one.caption.replace(one.said_of_ring, ""))


def _sizes(table: pd.DataFrame, across: str) -> pd.DataFrame:
    """Its rows for numbers of heads, in order; heads that are fixed are in one order, and not mended."""
    if across == "fixed":
        table = table[table["kind"] == "least"].assign(removed=table["fixed"], repair="", draw=0)
    return table.sort_values("removed")


def _draw_metric(ax: Axes, rows: pd.DataFrame, ring: str, *, is_first: bool) -> None:
    removed, value = rows["removed"], rows["metric"]
    shade = 1.0 if is_first else 0.35
    ax.plot(
        removed,
        rows["selection_metric"],
        color=SERIES[1],
        linewidth=1,
        alpha=shade,
        label="chosen on" if is_first else None,
    )
    ends = _ends(value, rows["metric_low"], rows["metric_high"])
    ax.errorbar(removed, value, ends, fmt="none", color=SERIES[0], elinewidth=1, alpha=shade)
    _draw_dots(ax, rows, SERIES[0], alpha=shade, label="reported on" if is_first else None)
    chosen = rows[rows["is_chosen"].astype(bool)]
    if is_first and len(chosen):
        ax.scatter(
            chosen["removed"],
            chosen["metric"],
            s=90,
            facecolors="none",
            edgecolors=INK,
            label=ring,
            zorder=3,
        )
    ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=RULE, labelcolor=MUTED)


def _draw_dots(
    ax: Axes,
    rows: pd.DataFrame,
    colour: str,
    *,
    size: float = 16,
    alpha: float = 1.0,
    label: str | None = None,
) -> None:
    """Filled on the front, hollow where another row dominates it."""
    for is_front, some in rows.groupby(rows["is_front"].astype(bool)):
        ax.scatter(
            some["removed"],
            some["metric"],
            s=size,
            facecolors=colour if is_front else PAPER,
            edgecolors=colour,
            alpha=alpha,
            label=None if label is None else label if is_front else f"{label}, dominated",
            zorder=2.5,
        )


def _ends(value: pd.Series, low: pd.Series, high: pd.Series) -> NDArray[np.float64]:
    """How far an interval reaches down and up; nothing where there is none."""
    ends = np.abs(np.stack([value - low, high - value]))
    return np.where(np.isfinite(ends), ends, 0.0)


def _draw_speed(ax: Axes, rows: pd.DataFrame, *, is_first: bool) -> None:
    ax.errorbar(
        rows["removed"],
        1 / rows["time"],
        _ends(1 / rows["time"], 1 / rows["time_high"], 1 / rows["time_low"]),
        fmt="o-",
        color=SERIES[2],
        markersize=3,
        linewidth=1,
        elinewidth=1,
        alpha=1 if is_first else 0.35,
    )
    ax.axhline(1.0, color=RULE, linewidth=0.8)
    ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=RULE, labelcolor=MUTED)
