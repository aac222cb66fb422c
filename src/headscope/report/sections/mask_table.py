"""Cost of masks for a task: a row for every mask, the change of the metric for each training mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import (
    METRIC_CHANGE,
    describe_change,
    metric_clause,
    metric_name,
)
from headscope.report.section import Section, fact_of_task, needs_table
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import Columns, Part, integer_cell, number_column, text_column
from headscope.report.text import plain, with_noun

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 1.9, 0.8, 0.6, 0.36
MARKS = ("o", "s", "^")


class MaskTable(StudyFigure):
    """A row for each mask, a mark for each training mode."""

    table = "mask_table"
    name = "mask-table"
    title = "Cost of masks"
    caption = (
        "The change of the metric under each mask, against the same training without a mask. Lines are 95 % intervals: "
        "paired over examples with one seed, over seeds with several. On the right: the share of the pairs of "
        "positions that the mask forbids in these texts."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["mask_table"].query("mask != 'dense'")
        shares = dict(zip(table["mask"][::-1], table["sparsity"][::-1], strict=True))
        masks, modes = (list(dict.fromkeys(table[name])) for name in ("mask", "mode"))
        task, metric = (entry_of(study.record, "mask_table", name) for name in ("task", "metric"))
        subtitle = f"{model_name(study)} · {plain(task or '', 30)}"
        body = max(1.2, ROW * len(masks))
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.35) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            ax.axvline(0, color=RULE, linewidth=0.8)
            for i, mode in enumerate(modes):
                rows = table[table["mode"] == mode]
                y = rows["mask"].map(masks.index) + 0.2 * (i - (len(modes) - 1) / 2)
                low, high = rows["change_low"], rows["change_high"]
                ax.hlines(y, low, high, color=SERIES[i], linewidth=1.2)
                dots: dict[str, Any] = {"color": SERIES[i], "markersize": 4, "label": mode}
                ax.plot(rows["metric_change"], y, MARKS[i], **dots)
            beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
            for i, mask in enumerate(masks):
                ax.text(1.02, i, f"{100 * float(shares[mask]):.0f} %", color=MUTED, **beside)
            ax.set_yticks(range(len(masks)), [plain(mask, 34) for mask in masks])
            ax.set_ylim(len(masks) - 0.5, -0.5)
            ax.set_xlabel(f"change of {plain(metric or 'metric', 30)}")
            if len(modes) > 1:
                where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
                ax.legend(frameon=False, ncols=len(modes), borderaxespad=0, **where)
            return sheet.figure


@needs_table("mask_table")
def part(study: Study, table: pd.DataFrame) -> Part:
    metric = metric_name(study, "mask_table")
    split = plain(entry_of(study.record, "mask_table", "reported_on", "split") or "one split", 30)
    note = (
        f"Results are on {split}. A change is against the same training without a mask, with the same seed and "
        "examples. With one seed the 95 % interval is paired over examples; with several seeds it is Student's "
        "interval over seeds."
    )
    columns: Columns = {
        "mask": text_column("mask", 60),
        "trained": text_column("mode", 20),
        "masked fraction": number_column("sparsity"),
        metric: number_column("metric", decimals=4),
        "change": METRIC_CHANGE,
        "change of loss": number_column("loss_change", decimals=4, sign=True),
        "seeds": lambda row: integer_cell(row["seeds"]),
    }
    return Part.of("mask-table", "Cost of masks", note, columns, table, words={0, 1})


@needs_table("mask_table")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The mask that costs least."""
    table = table[(table["mask"] != "dense") & table["metric_change"].notna()]
    for row in table.nlargest(1, "metric_change").to_dict("records"):
        masks = with_noun(table["mask"].nunique(), "mask")
        sentence = f"The mask “{plain(row['mask'], 60)}” costs the least of {masks}"
        after = (
            f"{metric_clause(study, 'mask_table', row)}; {describe_change(row, None)}; the mask forbids "
            f"{finite(row['sparsity']):.0%} of the pairs of positions; mode of training: {plain(row['mode'], 20)}; "
            "selected and reported on the same examples, which is optimistic"
        )
        yield Finding("", sentence, (), kind="learned", after=after)


SECTION = Section(
    figures={27: MaskTable},
    parts={110: part},
    findings={165: findings},
    facts={90: fact_of_task("mask_table", "what sparse masks cost for")},
)
