"""What masks cost a task: a row for every mask, the change of the metric in each way of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import figure_with_heading, heading_height, style
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import METRIC_CHANGE, change_sentence, metric_name
from headscope.report.section import Section, fact_of_task
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import (
    Columns,
    Part,
    integer_cell,
    number_column,
    rows_of,
    text_column,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 1.9, 0.8, 0.6, 0.36
MARKS = ("o", "s", "^")


class MaskTable(StudyFigure):
    table = "mask_table"
    name = "mask-table"
    title = "What masks cost"
    caption = (
        "The change of the metric under each mask, against the same training without one; lines are 95 % intervals: "
        "paired over examples where there is one seed, over seeds where there are several. On the right the share of "
        "attention that the mask forbids in these texts."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["mask_table"].query("mask != 'dense'")
        masks = list(dict.fromkeys(table["mask"]))
        modes = list(dict.fromkeys(table["mode"]))
        metric = plain(entry_of(study.record, "mask_table", "metric") or "metric", 30)
        subtitle = (
            f"{model_name(study)} · {plain(entry_of(study.record, 'mask_table', 'task') or '', 30)}"
        )
        with style():
            top = heading_height(WIDTH, subtitle) + 0.35
            body = max(1.2, ROW * len(masks))
            height = top + body + BOTTOM
            fig = figure_with_heading(WIDTH, height, self.title, subtitle)
            axes = fig.add_axes(
                (LEFT / WIDTH, BOTTOM / height, (WIDTH - LEFT - RIGHT) / WIDTH, body / height)
            )
            axes.axvline(0, color=RULE, linewidth=0.8)
            for number, mode in enumerate(modes):
                part = table[table["mode"] == mode].set_index("mask")
                place = np.array([masks.index(mask) for mask in part.index]) + 0.2 * (
                    number - (len(modes) - 1) / 2
                )
                colour = SERIES[number]
                axes.hlines(
                    place, part["change_low"], part["change_high"], color=colour, linewidth=1.2
                )
                axes.plot(
                    part["metric_change"],
                    place,
                    MARKS[number],
                    color=colour,
                    markersize=4,
                    label=mode,
                )
            for y, mask in enumerate(masks):
                share = float(table[table["mask"] == mask]["sparsity"].iloc[0])
                axes.text(
                    1.02,
                    y,
                    f"{100 * share:.0f} %",
                    transform=axes.get_yaxis_transform(),
                    va="center",
                    color=MUTED,
                )
            axes.set_yticks(range(len(masks)), [plain(mask, 34) for mask in masks])
            axes.set_ylim(len(masks) - 0.5, -0.5)
            axes.set_xlabel(f"change of {metric}")
            if len(modes) > 1:
                axes.legend(
                    frameon=False,
                    loc="lower left",
                    bbox_to_anchor=(0, 1),
                    ncols=len(modes),
                    borderaxespad=0,
                )
        return fig


def part(study: Study) -> Part | None:
    table = study.tables.get("mask_table")
    if table is None or not len(table):
        return None
    metric = metric_name(study, "mask_table")
    split = plain(entry_of(study.record, "mask_table", "reported_on", "split") or "one split", 30)
    note = (
        f"Reported on {split}. A change is that from the same training without a mask and with the same seed, on the "
        "same examples: of one seed with the paired 95 % interval over examples, of several the mean with Student's "
        "interval over seeds."
    )
    columns: Columns = {
        "mask": text_column("mask", 60),
        "trained": text_column("mode", 20),
        "forbidden share": number_column("sparsity"),
        metric: number_column("metric", decimals=4),
        "change": METRIC_CHANGE,
        "change of loss": number_column("loss_change", decimals=4, sign=True),
        "seeds": lambda row: integer_cell(row["seeds"]),
    }
    rows = rows_of(table.to_dict("records"), columns)
    return Part("mask-table", "What masks cost", note, tuple(columns), rows, words={0, 1})


def findings(study: Study) -> Iterator[Finding]:
    """The mask that costs least."""
    table = study.tables.get("mask_table")
    if table is None:
        return
    table = table[(table["mask"] != "dense") & table["metric_change"].notna()]
    for row in table.nlargest(1, "metric_change").to_dict("records"):
        sentence = (
            f"Of {table['mask'].nunique()} masks, {plain(row['mask'], 60)} costs least ({plain(row['mode'], 20)}; it "
            f"forbids {finite(row['sparsity']):.0%} of attention): {change_sentence(study, 'mask_table', row)}; "
            "it was picked on the examples that this is measured on"
        )
        yield Finding("", sentence, (), kind="learned")


SECTION = Section(
    figures={27: MaskTable},
    parts={50: part},
    findings={165: findings},
    facts={90: fact_of_task("mask_table", "what sparse masks cost for")},
)
