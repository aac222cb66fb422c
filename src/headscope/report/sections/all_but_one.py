"""Effect of leaving only the best head of each layer, after Michel's tables 2 and 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.ablation.significance import ALPHA
from headscope.report.drawing.palette import INK, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    annotate,
    draw_dot,
    draw_interval,
    draw_legend_below,
    draw_rules,
    write_above,
)
from headscope.report.section import Section, needs_table
from headscope.report.sections.ablation import metric_of, task_of
from headscope.report.study_access import model_name, stack_order
from headscope.report.table_cells import (
    UNCORRECTED,
    Cell,
    Columns,
    Part,
    address_cell,
    count_cell,
    decimals_for,
    interval_column,
    number_column,
    p_cell,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

TABLE = "all_but_one"
WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 1.35, 0.3, 1.0, 0.27
SURE, UNSURE, SAME = "significant", "not significant", "selected and reported on all examples"


class AllButOne(StudyFigure):
    """A line for each site: the change of the metric with its interval, and that on the data it was chosen on."""

    table = TABLE
    name = "all-but-one"
    title = "One head left in each layer"
    caption = (
        "All heads of a layer except one are ablated. A dot is the best head to keep, selected by the loss on one half "
        "of the examples; the number next to it is layer.head. The change of the metric and its uncorrected 95 % "
        "interval are from the other half. A filled dot is significant: p (Holm), corrected for the number of layers, "
        "is below 0.05. A cross is the head with the best metric on all examples, reported on the same examples as in "
        "Michel's tables, which is optimistic."
    )

    def applies(self, study: Study) -> bool:
        return bool(_rows_with_metric(study))

    def draw(self, study: Study) -> Figure:
        rows = _rows_with_metric(study)
        change = f"change of {metric_of(study)}, below 0 the model is worse than with all heads"
        subtitle = f"{model_name(study)}, {task_of(study)} · {change}"
        body = ROW * len(rows)
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.3) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            ax.axvline(0, color=INK, linewidth=1, zorder=1)
            for y, row in enumerate(rows):
                _draw_row(ax, row, y)
            write_above(ax, 0, "all heads")
            ax.margins(x=0.1)
            ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"change of {metric_of(study)}")
            names = [str(row["site"]).replace(".", ", layer ") for row in rows]
            ax.set_yticks(range(len(rows)), [plain(name, 24) for name in names])
            draw_rules(ax, "x")
            ax.tick_params(axis="y", length=0)
            texts = {label: f"on the other half, {label}" for label in (SURE, UNSURE)}
            draw_legend_below(sheet.figure, 2, texts | {SAME: SAME})
            return sheet.figure


def _rows_with_metric(study: Study) -> list[dict[Any, Any]]:
    """The rows of all_but_one.csv that have a value, by stack and layer."""
    rows = by_site(study.tables[TABLE]).to_dict("records") if TABLE in study.tables else []
    return [row for row in rows if pd.notna(row["metric"])]


def _draw_row(ax: Axes, row: dict[Any, Any], y: int) -> None:
    is_sure = bool(row["p_adjusted"] < ALPHA)
    if pd.notna(row["same_data_metric"]):
        cross: dict[str, Any] = {"color": SERIES[1], "markersize": 5, "zorder": 2, "label": SAME}
        ax.plot(row["same_data_metric"], y, "x", **cross)
    start = row["metric"]
    if pd.notna(row["metric_low"]):
        draw_interval(ax, row["metric_low"], row["metric_high"], y)
        start = row["metric_low"]
    draw_dot(ax, row["metric"], y, SURE if is_sure else UNSURE, is_filled=is_sure)
    # In front of the line, since the cross, which belongs to another head, is mostly behind it.
    text: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 6.8, "color": SERIES[0]}
    address = plain(".".join(str(row["left"]).split(".")[-2:]), 12)
    annotate(ax, address, (start, y), (-6, 0), **text)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    loss, metric = decimals_for(table["loss"]), decimals_for(table["metric"])
    columns: Columns = {
        "layer": lambda row: Cell(plain(row["site"], 30), row["place"]),
        "left": lambda row: address_cell(study, row["left"]),
        "change of loss": interval_column("loss", "loss_low", "loss_high", loss),
        "change of metric": interval_column("metric", "metric_low", "metric_high", metric),
        "p": lambda row: p_cell(row.get("p")),
        "p (Holm)": lambda row: p_cell(row["p_adjusted"]),
        "left, same data": lambda row: address_cell(study, row["same_data_left"]),
        "metric, same data": number_column("same_data_metric", decimals=metric),
        "examples": lambda row: count_cell(row["count"]),
    }
    note = (
        "All heads of a layer except one are ablated. The head to keep was selected by the loss on one half of the "
        f"examples; the changes of loss and {metric_of(study)} are from the other half. p is for the metric; p (Holm) "
        f"is corrected for the number of layers. {UNCORRECTED} The columns “same data” select and report on the same "
        "examples, as in Michel's tables, which is optimistic."
    )
    heading = "Ablating all heads of a layer except one"
    rows = by_site(table).assign(place=range(len(table)))
    return Part.of("all-but-one", heading, note, columns, rows, words={0})


def by_site(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a `site` such as `encoder.3`, by stack and layer."""

    def order(site: str) -> tuple[int, str, int]:
        stack, _, layer = str(site).rpartition(".")
        return *stack_order(stack), int(layer)

    return table.sort_values("site", key=lambda sites: sites.map(order), kind="stable")


SECTION = Section(figures={48: AllButOne}, parts={70: part})
