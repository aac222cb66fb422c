"""Metric and speed by the number of heads removed, on a held-out split, after Michel's figure 3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.noninferiority import Margin, largest_kept, selection_warning, verdict_in
from headscope.model.model_card import times_as_fast
from headscope.report.drawing.palette import INK, PAPER, RULE, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import draw_legend_below, draw_rules, whole_numbers
from headscope.report.finding import Finding, Headline, finite, join_details, short_number
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    SIZE_COLUMNS,
    change_of,
    describe_change,
    examples_of,
    margin_of,
    metric_name,
)
from headscope.report.section import Fact, Section, needs_table
from headscope.report.study_access import entry_of, model_name, records_of
from headscope.report.table_cells import NONE, Cell, Columns, Part, integer_cell, text_column
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

VERDICTS = {"kept": ("within", 2.0), "unclear": ("cannot tell", 1.0), "lost": ("beyond", 0.0)}
PANELS = Panels(wide=5.52, tall=1.9, left=0.68, right=0.2, bottom=0.85, above=0.2, gap_y=0.35)


class Front(StudyFigure):
    """The metric above, the measured speed below, by heads removed, or by heads fixed."""

    name = table = "front"
    title = "Metric and speed by number of pruned heads"
    xlabel = "heads pruned"
    entry = "pruning"  # of the run record
    ring = "pruned"
    ring_caption = " A ring marks the set that was pruned."
    caption = (
        "Upper panel: the metric by the number of pruned heads, on the report split (dots, with 95 % intervals) and "
        "on the selection split (line). A ring marks the set that was pruned. Filled dots are Pareto-optimal; for a "
        "hollow dot there is a set that is better in size, metric or speed and not worse in the others. Lower panel: "
        "how many times as fast as the unpruned model, measured on this machine, with 95 % intervals."
    )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Front]:
        figure, table = cls(), study.tables.get(cls.table)
        if table is None or not table["is_chosen"].any():
            figure.caption = cls.caption.replace(cls.ring_caption, "")
        return [figure]

    def applies(self, study: Study) -> bool:
        return len(records_of(study, self.table)) > 1

    def draw(self, study: Study) -> Figure:
        table = self.rows(study)
        entry: dict[str, Any] = entry_of(study.record, self.entry) or {}
        search, task = (plain(entry.get(name) or "", 30) for name in ("search", "task"))
        subtitle = f"{model_name(study)}, {task}"
        if search:
            trained = ", trained after every step" if entry.get("in_steps") else ""
            subtitle += f" · search: {search}{trained}"
        with PANELS.open(self.title, subtitle, 2, 1) as sheet:
            above = sheet.add_panel(0, 0)
            below = sheet.add_panel(1, 0, sharex=above)
            for draw, rows in table[table["repair"] == ""].groupby("draw"):
                _draw_metric(above, rows, self.ring, is_first=draw == 0)
                _draw_speed(below, rows, is_first=draw == 0)
            repaired = table[(table["repair"] != "") & (table["draw"] == 0)]
            for i, (repair, rows) in enumerate(repaired.groupby("repair")):
                colour, label = SERIES[3 + i % (len(SERIES) - 3)], plain(repair, 20)
                line = rows["removed"], rows["metric"], "--"
                above.plot(*line, color=colour, linewidth=1, label=label)
                _draw_dots(above, rows, colour, size=4)
            above.set_ylabel(plain(entry.get("metric") or "metric", 30))
            above.tick_params(labelbottom=False)
            fastest = max(1.0, float((1 / table["time_low"]).max()))
            below.set(ylabel="times as fast", ylim=(0, 1.1 * fastest), xlabel=self.xlabel)
            whole_numbers(below.xaxis)
            draw_legend_below(sheet.figure, 3)
            return sheet.figure

    def rows(self, study: Study) -> pd.DataFrame:
        """The rows of the table in order of the number of heads, with the columns of front.csv."""
        return study.tables[self.table].sort_values("removed")


def _draw_metric(ax: Axes, rows: pd.DataFrame, ring: str, *, is_first: bool) -> None:
    removed, value = rows["removed"], rows["metric"]
    shade, label = (1.0, "selection split") if is_first else (0.35, None)
    selected = rows["selection_metric"]
    ax.plot(removed, selected, color=SERIES[1], linewidth=1, alpha=shade, label=label)
    ends = _error_bars(value, rows["metric_low"], rows["metric_high"])
    ax.errorbar(removed, value, ends, fmt="none", color=SERIES[0], elinewidth=1, alpha=shade)
    _draw_dots(ax, rows, SERIES[0], size=16, alpha=shade, label="report split" if is_first else "")
    chosen = rows[rows["is_chosen"].astype(bool)]
    if is_first and len(chosen):
        circle: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": INK}
        ax.scatter(chosen["removed"], chosen["metric"], label=ring, zorder=3, **circle)
    draw_rules(ax, "y")


def _draw_dots(
    ax: Axes, rows: pd.DataFrame, colour: str, *, size: float, alpha: float = 1.0, label: str = ""
) -> None:
    """Draw dots, filled for sets on the front and hollow for others. label: empty for no entry in the legend."""
    for is_front, group in rows.groupby(rows["is_front"].astype(bool)):
        dots: dict[str, Any] = {"facecolors": colour if is_front else PAPER, "edgecolors": colour}
        if label:
            dots["label"] = label if is_front else f"{label}, not Pareto-optimal"
        ax.scatter(group["removed"], group["metric"], s=size, alpha=alpha, zorder=2.5, **dots)


def _error_bars(value: pd.Series, low: pd.Series, high: pd.Series) -> NDArray[np.float64]:
    """Distances from the value to the ends of its interval, [2, row]; 0 without an interval."""
    ends = np.abs(np.stack([value - low, high - value]))
    return np.where(np.isfinite(ends), ends, 0.0)


def _draw_speed(ax: Axes, rows: pd.DataFrame, *, is_first: bool) -> None:
    speed = 1 / rows["time"]
    ends = _error_bars(speed, 1 / rows["time_high"], 1 / rows["time_low"])
    line: dict[str, Any] = {"markersize": 3, "linewidth": 1, "elinewidth": 1}
    shade = 1 if is_first else 0.35
    ax.errorbar(rows["removed"], speed, ends, fmt="o-", color=SERIES[2], alpha=shade, **line)
    ax.axhline(1.0, color=RULE, linewidth=0.8)
    draw_rules(ax, "y")


@needs_table("front")
def part(study: Study, table: pd.DataFrame) -> Part:
    table = table.sort_values("removed", kind="stable")
    draws: Columns = {"draw": lambda row: integer_cell(row["draw"])}
    repairs: Columns = {"repair": text_column("repair", 20)}
    columns: Columns = {
        "pruned": lambda row: Cell(
            f"{row['removed']:.0f}{' (pruned)' if row['is_chosen'] else ''}", int(row["removed"])
        ),
        **(draws if table["draw"].nunique() > 1 else {}),
        **(repairs if table["repair"].nunique() > 1 else {}),
        "Pareto-optimal": lambda row: Cell(
            "yes" if row["is_front"] else "no", float(row["is_front"])
        ),
        **SIZE_COLUMNS,
        "metric": METRIC,
        "change of metric": METRIC_CHANGE,
        "allowed loss": lambda row: _verdict(study, row),
        "change of loss": LOSS_CHANGE,
    }
    selected_on, reported_on = _splits(study.record)
    timed = entry_of(study.record, "pruning", "timed")
    margin = _margin(study, table.to_dict("records")[0])
    note = (
        f"Sets of heads were selected on {plain(selected_on or 'one split', 30)} (selection split) and are reported on "
        f"{plain(reported_on or 'another', 30)} (report split). Changes of the metric and the loss are against the "
        "unpruned model, paired by example, with 95 % intervals. Times as fast: relative to the unpruned model, "
        "measured on this machine"
        f"{' with ' + plain(timed, 60) if timed else ''}. A row is Pareto-optimal if no other row is at least as "
        "good in heads, parameters, metric and time and better in one of these; differences within the intervals do "
        f"not count. The allowed loss is {margin} of the metric. A set is within it if the whole interval of its "
        "change is above the allowed loss. If only a part is above, there are too few examples to tell."
    )
    if entry_of(study.record, "pruning", "in_steps"):
        note += " Heads were pruned in steps, with training after each step."
    if removed := entry_of(study.record, "pruning", "removed"):
        note += f" Pruned heads: {plain(removed, 1000)}."
    return Part.of("front", "What can be pruned", note, columns, table)


def _splits(record: Mapping[str, Any]) -> list[Any]:
    """The splits for selection and for the report, as recorded."""
    return [entry_of(record, "pruning", side, "split") for side in ("selected_on", "reported_on")]


def _verdict(study: Study, row: dict[Any, Any]) -> Cell:
    """Whether the change is within the allowed loss; empty for the unpruned model."""
    if not row["removed"]:
        return Cell(NONE)
    verdict = verdict_in(row, _margin(study, row), examples_of(study, "pruning"))
    return Cell(*VERDICTS[verdict.kind])


def _margin(study: Study, row: dict[Any, Any]) -> Margin:
    return margin_of(row, entry_of(study.record, "pruning", "target", "keep_metric"))


@needs_table("front")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The number of heads that the plan prunes, and the effect on the report split."""
    row = next((row for row in table.to_dict("records") if row["is_chosen"]), None)
    if row is None:
        return
    metric, count = metric_name(study, "pruning"), examples_of(study, "pruning")
    split = plain(_splits(study.record)[1] or "another split", 30)
    keep = entry_of(study.record, "pruning", "target", "keep_metric")
    time = [finite(row[name]) for name in ("time", "time_low", "time_high")]
    faster = f" and the model is {times_as_fast(*time)}" if all(map(math.isfinite, time)) else ""
    total = int(row["removed"]) + int(row["left"])
    intact = entry_of(study.record, "pruning", "intact", "report")
    intact = entry_of(intact or {}, str(entry_of(study.record, "pruning", "metric")), "value")
    before = f" ({intact:.4f} with all heads)" if isinstance(intact, float) else ""
    others = _others(table, row, margin_of(row, keep), count, split)
    change = describe_change(row, count, keep)
    after = (
        f"{metric} {row['metric']:.4f}{before}; {change}{faster.replace(' and', ';', 1)}{others}"
    )
    headline = Headline(
        f"With {int(row['removed'])} of {total} heads pruned, {metric} on {split} changes by",
        short_number(row["metric_change"], 4, sign=True),
        "",
        join_details(
            f"{metric} {row['metric']:.4f}{before}",
            change,
            faster.removeprefix(" and "),
        ),
    )
    strength = change_of(row).strength(0.0)
    yield Finding(
        "cut", headline.sentence, (), kind="cut", strength=strength, after=after, headline=headline
    )
    yield from _after_repair(study, metric, count, keep)
    if warning := entry_of(study.record, "pruning", "warning"):
        yield Finding("cut", plain(warning, 300), (), kind="cut", is_clear=False)


def _others(
    table: pd.DataFrame, chosen: dict[Any, Any], margin: Margin, count: int | None, split: str
) -> str:
    """The largest set that is shown to stay within the allowed loss, if it is not the set that was pruned.

    A smaller set is mentioned only if the pruned set is not shown to stay within the allowed loss.
    """
    is_within = verdict_in(chosen, margin, count).kind == "kept"
    least = int(chosen["removed"]) + 1 if is_within else 1
    rows = table[(table["removed"] >= least) & ~table["is_chosen"].astype(bool)].to_dict("records")
    most = largest_kept(rows, margin, count)
    if most is not None:
        method, change = plain(most["repair"], 30), change_of(dict(most)).text(sign=True)
        repair = f", repaired by {method}," if method else ""
        pruned = f"{int(most['removed'])} pruned heads"
        return f"; {pruned}{repair} are within the allowed loss: change of {change}; {selection_warning(split)}"
    return "" if is_within else "; no reported set is shown to be within the allowed loss"


def _after_repair(
    study: Study, metric: str, count: int | None, keep_metric: Any
) -> Iterator[Finding]:
    """The metric of the saved model, after repairs and further training."""
    stages = entry_of(study.record, "pruning", "saved", "stages")
    if not isinstance(stages, dict) or len(stages) < 2:
        return
    last, result = list(stages.items())[-1]
    repairs = " and ".join(plain(stage, 20) for stage in list(stages)[1:])
    value = result["metrics"][entry_of(study.record, "pruning", "metric")]["value"]
    method = "after further training" if last == "recovered" else f"after repair ({repairs})"
    names = {"metric_change": "value", "change_low": "low", "change_high": "high"}
    row = {"metric": value, **{name: result["change"][key] for name, key in names.items()}}
    sentence = f"The saved model, {method}, has {metric} {value:.4f}"
    after = describe_change(row, count, keep_metric)
    yield Finding("cut", sentence, (), kind="cut", after=after)


def _fact(record: Mapping[str, Any]) -> str:
    pruning = record["pruning"]
    if pruning.get("search") == "gates":
        return ""  # the section of gates describes it
    task, search = plain(pruning.get("task"), 40), plain(pruning.get("search"), 30)
    splits = [plain(split, 30) for split in _splits(record) if split]
    data = f", selected on {splits[0]} and reported on {splits[1]}" if len(splits) == 2 else ""
    return f"which heads can be pruned for {task} (search: {search}){data}"


SECTION = Section(
    figures={20: Front},
    parts={90: part},
    findings={30: findings},
    facts={50: Fact("pruning", _fact)},
)
