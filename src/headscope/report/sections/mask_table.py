"""What masks cost a task: a row for every mask, the change of the metric in each way of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.data_source import Source, table
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.style import headed, heading_height, style
from headscope.report.study_access import model_name, recorded
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 23
WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 1.9, 0.8, 0.6, 0.36
MARKS = ("o", "s", "^")


@dataclass(frozen=True)
class MaskTable:
    name: str = "mask-table"
    title: str = "What masks cost"
    caption: str = (
        "The change of the metric under each mask, against the same training without one; lines are 95 % intervals: "
        "paired over examples where there is one seed, over seeds where there are several. On the right the share of "
        "attention that the mask forbids in these texts."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return "mask_table" in study.tables

    def source(self, study: Study) -> Source:
        return table("mask_table")

    def draw(self, study: Study) -> Figure:
        table = study.tables["mask_table"].query("mask != 'dense'")
        masks = list(dict.fromkeys(table["mask"]))
        modes = list(dict.fromkeys(table["mode"]))
        metric = plain(recorded(study.record, "mask_table", "metric") or "metric", 30)
        subtitle = (
            f"{model_name(study)} · {plain(recorded(study.record, 'mask_table', 'task') or '', 30)}"
        )
        with style():
            top = heading_height(WIDTH, subtitle) + 0.35
            body = max(1.2, ROW * len(masks))
            height = top + body + BOTTOM
            fig = headed(WIDTH, height, self.title, subtitle)
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


def drawings(study: Study) -> Iterator[MaskTable]:
    if "mask_table" in study.tables:
        yield MaskTable()
