"""What is lost and gained as heads go: the metric on examples that nothing was chosen on, after Michel's figure 3."""

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
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    SIZE_COLUMNS,
    change_of,
    change_strength,
    describe_change,
    examples_of,
    margin_of,
    metric_name,
)
from headscope.report.section import Fact, Section, needs_table
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import NONE, Cell, Columns, Part, integer_cell, text_column
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

CHANGE = {"metric_change": "value", "change_low": "low", "change_high": "high"}  # of a stage
WORDS = {"kept": ("within", 2.0), "unclear": ("cannot tell", 1.0), "lost": ("beyond", 0.0)}
PANELS = Panels(wide=5.52, tall=1.9, left=0.68, right=0.2, bottom=0.85, above=0.2, gap_y=0.35)


class Front(StudyFigure):
    """The metric above, the measured speed below, by heads removed, or by heads fixed."""

    name = table = "front"
    title = "What is lost and gained as heads go"
    across = "removed"
    entry = "pruning"  # of the run record
    ring = "cut"
    said_of_ring = "; the ring is the set that was cut"
    caption = (
        "Above: the metric with so many heads removed, on the split that was reported on (dots, with 95 % intervals) "
        "and on the one that was chosen on (line); the ring is the set that was cut. Filled dots are the front; a "
        "hollow one is dominated: another set is no larger, as good and no slower, and better in one of these. Below: "
        "how many times as fast as the whole model it is, measured on this machine, with 95 % intervals."
    )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Front]:
        figure, table = cls(), study.tables.get(cls.table)
        if table is None or not table["is_chosen"].any():
            figure.caption = cls.caption.replace(cls.said_of_ring, "")
        return [figure]

    def applies(self, study: Study) -> bool:
        return self.table in study.tables and len(study.tables[self.table]) > 1

    def draw(self, study: Study) -> Figure:
        table = _sizes(study.tables[self.table], self.across)
        entry: dict[str, Any] = entry_of(study.record, self.entry) or {}
        search, task = (plain(entry.get(name) or "", 30) for name in ("search", "task"))
        trained = ", trained after every step" if entry.get("in_steps") else ""
        said = f" · search: {search}{trained}" if search else ""
        with PANELS.open(self.title, f"{model_name(study)}, {task}{said}", 2, 1) as sheet:
            above = sheet.add_panel(0, 0)
            below = sheet.add_panel(1, 0, sharex=above)
            for draw, rows in table[table["repair"] == ""].groupby("draw"):
                _draw_metric(above, rows, self.ring, is_first=draw == 0)
                _draw_speed(below, rows, is_first=draw == 0)
            mended = table[(table["repair"] != "") & (table["draw"] == 0)]
            for place, (repair, rows) in enumerate(mended.groupby("repair")):
                colour, label = SERIES[3 + place % (len(SERIES) - 3)], plain(repair, 20)
                line = rows["removed"], rows["metric"], "--"
                above.plot(*line, color=colour, linewidth=1, label=label)
                _draw_dots(above, rows, colour, size=4)
            above.set_ylabel(plain(entry.get("metric") or "metric", 30))
            above.tick_params(labelbottom=False)
            fastest = max(1.0, float((1 / table["time_low"]).max()))
            below.set(ylabel="times as fast", ylim=(0, 1.1 * fastest))
            below.set_xlabel(f"heads {self.across}")
            whole_numbers(below.xaxis)
            draw_legend_below(sheet.figure, 3)
            return sheet.figure


def _sizes(table: pd.DataFrame, across: str) -> pd.DataFrame:
    """Its rows for numbers of heads, in order; heads that are fixed are in one order, and not mended."""
    if across == "fixed":
        table = table[table["kind"] == "least"].assign(removed=table["fixed"], repair="", draw=0)
    return table.sort_values("removed")


def _draw_metric(ax: Axes, rows: pd.DataFrame, ring: str, *, is_first: bool) -> None:
    removed, value = rows["removed"], rows["metric"]
    shade, label = (1.0, "chosen on") if is_first else (0.35, None)
    selected = rows["selection_metric"]
    ax.plot(removed, selected, color=SERIES[1], linewidth=1, alpha=shade, label=label)
    ends = _ends(value, rows["metric_low"], rows["metric_high"])
    ax.errorbar(removed, value, ends, fmt="none", color=SERIES[0], elinewidth=1, alpha=shade)
    _draw_dots(ax, rows, SERIES[0], alpha=shade, label="reported on" if is_first else None)
    chosen = rows[rows["is_chosen"].astype(bool)]
    if is_first and len(chosen):
        circle: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": INK}
        ax.scatter(chosen["removed"], chosen["metric"], label=ring, zorder=3, **circle)
    draw_rules(ax, "y")


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
    speed = 1 / rows["time"]
    ends = _ends(speed, 1 / rows["time_high"], 1 / rows["time_low"])
    line: dict[str, Any] = {"markersize": 3, "linewidth": 1, "elinewidth": 1}
    shade = 1 if is_first else 0.35
    ax.errorbar(rows["removed"], speed, ends, fmt="o-", color=SERIES[2], alpha=shade, **line)
    ax.axhline(1.0, color=RULE, linewidth=0.8)
    draw_rules(ax, "y")


@needs_table("front")
def part(study: Study, table: pd.DataFrame) -> Part:
    several = table["draw"].nunique() > 1
    table = table.sort_values("removed", kind="stable")
    mended = table["repair"].nunique() > 1
    columns: Columns = {
        "removed": lambda row: Cell(
            f"{int(row['removed'])}{' (cut)' if row['is_chosen'] else ''}", int(row["removed"])
        ),
        **({"draw": lambda row: integer_cell(row["draw"])} if several else {}),
        **({"repair": text_column("repair", 20)} if mended else {}),
        "front": lambda row: Cell(
            "on it" if row["is_front"] else "dominated", float(row["is_front"])
        ),
        **SIZE_COLUMNS,
        "metric": METRIC,
        "change of metric": METRIC_CHANGE,
        "allowed loss": lambda row: _verdict(study, row),
        "change of loss": LOSS_CHANGE,
    }
    chosen_on, reported_on = _splits(study.record)
    timed = entry_of(study.record, "pruning", "timed")
    note = (
        f"Sets of heads were chosen on {plain(chosen_on or 'one split', 30)} and are reported on "
        f"{plain(reported_on or 'another', 30)}: the metric, its change and that of the loss against the whole model, "
        "example by example, with 95 % intervals. Times as fast is against the whole model, measured on this machine"
        f"{' with ' + plain(timed, 60) if timed else ''}. A row is dominated where another one "
        "has no more heads and parameters, a metric as high and no time that is longer beyond the intervals, and is "
        "better in one of these; the others are the front."
    )
    margin = _margin(study, table.to_dict("records")[0])
    note += (
        f" Allowed loss: {margin} of the metric. A set is within it if the whole interval of its change is above "
        "it, each set by itself; where the interval reaches below, there are too few examples to tell."
    )
    if entry_of(study.record, "pruning", "in_steps"):
        note += " Heads went in steps, and each was trained after it was cut."
    if removed := entry_of(study.record, "pruning", "removed"):
        note += f" These heads are cut: {plain(removed, 1000)}."
    return Part.of("front", "What can be cut", note, columns, table)


def _splits(record: Mapping[str, Any]) -> list[Any]:
    """The splits that were chosen on and reported on, as recorded."""
    return [entry_of(record, "pruning", side, "split") for side in ("selected_on", "reported_on")]


def _verdict(study: Study, row: dict[Any, Any]) -> Cell:
    """Whether the change is within the allowed loss; the whole model has none."""
    if not row["removed"]:
        return Cell(NONE)
    return Cell(*WORDS[verdict_in(row, _margin(study, row), examples_of(study, "pruning")).kind])


def _margin(study: Study, row: dict[Any, Any]) -> Margin:
    return margin_of(row, entry_of(study.record, "pruning", "target", "keep_metric"))


@needs_table("front")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """What the plan removes, and what that does on the split that nothing was chosen on."""
    rows = table[table["is_chosen"].astype(bool)].to_dict("records")
    if not rows:
        return
    row = rows[0]
    metric, count = metric_name(study, "pruning"), examples_of(study, "pruning")
    split = plain(_splits(study.record)[1] or "another split", 30)
    keep = entry_of(study.record, "pruning", "target", "keep_metric")
    time = [finite(row[name]) for name in ("time", "time_low", "time_high")]
    faster = f" and the model is {times_as_fast(*time)}" if all(map(math.isfinite, time)) else ""
    whole = int(row["removed"]) + int(row["left"])
    others = _others(table, row, margin_of(row, keep), count, split)
    sentence = (
        f"{int(row['removed'])} of {whole} heads are cut{faster}: {metric} on {split} is {row['metric']:.4f}"
        f"{_intact(study)}, {describe_change(row, count, keep)}{others}"
    )
    yield Finding("cut", sentence, (), kind="cut", strength=change_strength(row))
    yield from _saved(study, metric, count, keep)
    if warning := entry_of(study.record, "pruning", "warning"):
        yield Finding("cut", plain(warning, 300), (), kind="cut", is_clear=False)


def _others(
    table: pd.DataFrame, chosen: dict[Any, Any], margin: Margin, count: int | None, split: str
) -> str:
    """The largest set that is shown to stay within the allowed loss, if that is another one than the set cut.

    A smaller set is told of only if the one cut is not shown to stay within it.
    """
    is_kept = verdict_in(chosen, margin, count).kind == "kept"
    least = int(chosen["removed"]) + 1 if is_kept else 1
    rows = table[(table["removed"] >= least) & ~table["is_chosen"].astype(bool)].to_dict("records")
    most = largest_kept(rows, margin, count)
    if most is not None:
        named, change = plain(most["repair"], 30), change_of(dict(most)).text(sign=True)
        repair = f", repaired by {named}," if named else ""
        return f"; removing {int(most['removed'])}{repair} stays within it: {change}; {selection_warning(split)}"
    return "" if is_kept else "; no reported set is shown to stay within it"


def _intact(study: Study) -> str:
    """What the whole model has, to be compared with."""
    metric = str(entry_of(study.record, "pruning", "metric"))
    value = entry_of(study.record, "pruning", "intact", "report", metric, "value")
    return f" ({value:.4f} with all heads)" if isinstance(value, float) else ""


def _saved(study: Study, metric: str, count: int | None, keep_metric: Any) -> Iterator[Finding]:
    """What repairs and further training gave back."""
    stages = entry_of(study.record, "pruning", "saved", "stages")
    if not isinstance(stages, dict) or len(stages) < 2:
        return
    last, measured = list(stages.items())[-1]
    told = " and ".join(plain(stage, 20) for stage in list(stages)[1:])
    reached = measured["metrics"][entry_of(study.record, "pruning", "metric")]["value"]
    said = "trained again" if last == "recovered" else f"mended ({told})"
    change = {name: measured["change"][of] for name, of in CHANGE.items()}
    told = describe_change({"metric": reached} | change, count, keep_metric)
    yield Finding("cut", f"As it is saved, {said}: {metric} {reached:.4f}, {told}", (), kind="cut")


def _fact(record: Mapping[str, Any]) -> str:
    pruning = record["pruning"]
    if pruning.get("search") == "gates":
        return ""  # said of the gates
    task, search = plain(pruning.get("task"), 40), plain(pruning.get("search"), 30)
    splits = [plain(split, 30) for split in _splits(record) if split]
    where = f", chosen on {splits[0]} and reported on {splits[1]}" if len(splits) == 2 else ""
    return f"what {task} can do without (search: {search}){where}"


SECTION = Section(
    figures={20: Front},
    parts={20: part},
    findings={30: findings},
    facts={50: Fact("pruning", _fact)},
)
