"""The fixed pattern nearest to each head: layers down, heads across, a colour for each pattern; fixing heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from headscope.report.drawing.palette import MISSING, ON_DARK, ON_LIGHT, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import draw_legend, number_cells, write_in_cell
from headscope.report.finding import Finding
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    SIZE_COLUMNS,
    change_of,
    describe_change,
    examples_of,
    metric_clause,
)
from headscope.report.section import Section, fact_of_task, needs_table
from headscope.report.sections.front import Front
from headscope.report.study_access import entry_of, grid_of, model_name, records_of, stacks_with
from headscope.report.table_cells import Cell, Columns, Part, integer_cell
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

COLOURS = {
    "current": SERIES[0],
    "previous": SERIES[1],
    "next": SERIES[2],
    "left": SERIES[3],
    "right": SERIES[4],
    "start": SERIES[5],
    "end": "#f0e442",  # the yellow of Okabe and Ito
    "first": "#332288",
    "uniform": "#a9b3bb",
}
SHORT = {"current": "self", "previous": "prev", "uniform": "unif"}
MOST_HEADS_WITH_VALUES = 16
LEFT, RIGHT, BOTTOM = 0.55, 0.2, 0.48


class FixedPatternsFigure(StackFigure):
    """The nearest fixed pattern of every head of one stack; paler the further away it is."""

    stem = "fixed"
    statistics = tuple(f"js-{name}" for name in COLOURS)
    title = "The nearest fixed pattern"
    caption = (
        "The colour is the fixed pattern that a head is nearest to. The number is the Jensen–Shannon divergence from "
        "that pattern in nats: near 0 the pattern could replace the head; at 0.69, the maximum (white), the pattern "
        "and the head attend to different tokens."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return stacks_with(study, "js-uniform")

    def draw(self, study: Study) -> Figure:
        names = [name for name in COLOURS if self.stack in stacks_with(study, f"js-{name}")]
        distances = np.stack([grid_of(study, f"js-{name}", self.stack) for name in names], axis=-1)
        layers, heads = distances.shape[:2]
        cell = 0.37 if heads <= MOST_HEADS_WITH_VALUES else 0.17 if heads <= 40 else 0.11
        subtitle = f"{model_name(study)}, {self.stack} · colour: nearest of {len(names)} patterns; number: nats"
        width = max(LEFT + heads * cell + RIGHT, 4.6)
        above = 0.19 * -(-len(names) // 5) + 0.2
        body = max(layers * cell, 0.5) + BOTTOM
        with open_sheet(self.title, subtitle, width, body, above) as sheet:
            ax = sheet.add_axes(LEFT, 0, heads * cell, layers * cell)
            _draw_cells(ax, distances, names, prints_values=heads <= MOST_HEADS_WITH_VALUES)
            patches = {plain(name): Patch(color=COLOURS[name]) for name in names}
            spaces = {"handlelength": 0.9, "columnspacing": 1.0}
            draw_legend(sheet.figure, patches, sheet.point(0.12, -0.12), ncols=5, **spaces)
            return sheet.figure


def _draw_cells(
    ax: Axes, distances: NDArray[np.float64], names: list[str], *, prints_values: bool
) -> None:
    """Draw a cell for each head: colour and name of its nearest pattern. distances: [layer, head, pattern]."""
    layers, heads = distances.shape[:2]
    colours = np.array([to_rgb(COLOURS[name]) for name in names])
    picture = np.tile(to_rgb(MISSING), (layers, heads, 1))
    for layer, head in np.ndindex(layers, heads):
        if np.isfinite(distances[layer, head]).any():
            nearest = int(np.nanargmin(distances[layer, head]))
            distance = float(distances[layer, head, nearest])
            depth = max(1 - distance / math.log(2), 0.0)
            picture[layer, head] = 1 - (1 - colours[nearest]) * depth
            if prints_values:
                number = f"{distance:.2f}".removeprefix("0")
                text = f"{SHORT.get(names[nearest], names[nearest])}\n{number}"
                dark = picture[layer, head] @ (0.2126, 0.7152, 0.0722) < 0.45
                ink = ON_DARK if dark else ON_LIGHT
                write_in_cell(ax, head + 0.5, layer + 0.52, text, 5.8, ink)
    line = 0.8 if heads <= 32 else 0.3
    ax.pcolormesh(picture, edgecolors="#ffffff", linewidth=line, clip_on=False)
    ax.set(xlim=(0, heads), ylim=(layers, 0), aspect="equal", xlabel="head", ylabel="layer")
    number_cells(ax.xaxis, heads)
    number_cells(ax.yaxis, layers)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)


class FixingFront(Front):
    """The metric and the measured speed by heads fixed."""

    name = table = "fixing"
    title = "Metric and speed by number of fixed heads"
    xlabel = "heads fixed"
    entry = "fixing"
    ring = "saved"
    ring_caption = " A ring marks the model that was saved."
    caption = (
        "Upper panel: the metric by the number of heads with fixed patterns, on the report split (dots, with 95 % "
        "intervals) and on the selection split (line). A ring marks the model that was saved. Lower panel: how "
        "many times as fast as the unchanged model, measured on this machine; fixed heads need no queries and keys."
    )

    def rows(self, study: Study) -> pd.DataFrame:
        """The rows for numbers of heads; these are fixed in one order, and not repaired."""
        table = study.tables[self.table].query("kind == 'least'")
        return table.assign(removed=table["fixed"], repair="", draw=0).sort_values("removed")


@needs_table("fixing")
def part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "fixed": lambda row: Cell(
            plain(row["named"], 30) + (" (saved)" if row["is_chosen"] else ""), row["place"]
        ),
        "heads": lambda row: integer_cell(row["fixed"]),
        **SIZE_COLUMNS,
        "metric": METRIC,
        "change of metric": METRIC_CHANGE,
        "change of loss": LOSS_CHANGE,
    }
    how, timed = (entry_of(study.record, "fixing", name) or "" for name in ("how", "timed"))
    note = (
        "Rows with an increasing number of fixed heads come first, then rows with one layer fixed. "
        f"{plain(how, 300)} "
        f"Reported on {plain(entry_of(study.record, 'fixing', 'judged_on') or 'another split', 90)}: changes are "
        "against the unchanged model, paired by example, with 95 % intervals. Times as fast: relative to the unchanged "
        f"model, measured on this machine{' with ' + plain(timed, 60) if timed else ''}."
    )
    rows = table.assign(place=range(len(table)))
    return Part.of("fixing", "Heads with fixed patterns", note, columns, rows, words={0})


def findings(study: Study) -> Iterator[Finding]:
    """The loss of the saved model whose heads attend by fixed patterns, or of the one with most such heads."""
    rows = [row for row in records_of(study, "fixing") if row["kind"] == "least"]
    if not rows:
        return
    most = max(rows, key=lambda row: int(row["fixed"]))
    row = next((row for row in rows if row["is_chosen"]), most)
    fixed = int(row["fixed"])
    sentence = (
        f"With {fixed} of {fixed + int(row['learned'])} heads attending by fixed patterns, "
        f"{metric_clause(study, 'fixing', row)}"
    )
    strength, after = (
        change_of(row).strength(0.0),
        describe_change(row, examples_of(study, "fixing")),
    )
    yield Finding("", sentence, (), kind="learned", strength=strength, after=after)


SECTION = Section(
    figures={21: FixingFront, 36: FixedPatternsFigure},
    parts={100: part},
    findings={150: findings},
    facts={70: fact_of_task("fixing", "how many heads can be replaced by fixed patterns for")},
)
