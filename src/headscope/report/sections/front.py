"""What is lost and gained as heads go: the metric on examples that nothing was chosen on, after Michel's figure 3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.noninferiority import Margin, largest_kept, picked_on, verdict_in
from headscope.model.model_card import times_as_fast
from headscope.report.drawing.palette import INK, PAPER, RULE, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    draw_legend_below,
    draw_rules,
    headed,
    heading_height,
    style,
    whole_numbers,
)
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    SIZE_COLUMNS,
    change_of,
    change_strength,
    examples_of,
    margin_of,
    metric_name,
    said_of_change,
)
from headscope.report.section import Fact, Section
from headscope.report.study_access import model_name, recorded
from headscope.report.table_cells import (
    NONE,
    Cell,
    Columns,
    Part,
    integer_cell,
    rows_of,
    text_column,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

CHANGE = {
    "metric_change": "value",
    "change_low": "low",
    "change_high": "high",
}  # of a stage, as in front.csv
WORDS = {"kept": ("within", 2.0), "unclear": ("cannot tell", 1.0), "lost": ("beyond", 0.0)}

WIDTH, LEFT, RIGHT, BOTTOM, PANEL, GAP = 6.4, 0.68, 0.2, 0.85, 1.9, 0.35


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
        metric = plain(recorded(study.record, self.entry, "metric") or "metric", 30)
        search = plain(recorded(study.record, self.entry, "search") or "", 30)
        task = plain(recorded(study.record, self.entry, "task") or "", 30)
        trained = (
            ", trained after every step" if recorded(study.record, self.entry, "in_steps") else ""
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
            draw_legend_below(fig, handles, labels, 3)
            return fig


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
    draw_rules(ax, "y")


def part(study: Study) -> Part | None:
    table = study.tables.get("front")
    if table is None or not len(table):
        return None
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
    splits = [
        recorded(study.record, "pruning", side, "split") for side in ("selected_on", "reported_on")
    ]
    timed = recorded(study.record, "pruning", "timed")
    note = (
        f"Sets of heads were chosen on {plain(splits[0] or 'one split', 30)} and are reported on "
        f"{plain(splits[1] or 'another', 30)}: the metric, its change and that of the loss against the whole model, "
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
    if recorded(study.record, "pruning", "in_steps"):
        note += " Heads went in steps, and each was trained after it was cut."
    if removed := recorded(study.record, "pruning", "removed"):
        note += f" These heads are cut: {plain(removed, 1000)}."
    rows = rows_of(table.to_dict("records"), columns)
    return Part("front", "What can be cut", note, tuple(columns), rows)


def _verdict(study: Study, row: dict[Any, Any]) -> Cell:
    """Whether the change is within the allowed loss; the whole model has none."""
    if not row["removed"]:
        return Cell(NONE)
    return Cell(*WORDS[verdict_in(row, _margin(study, row), examples_of(study, "pruning")).kind])


def _margin(study: Study, row: dict[Any, Any]) -> Margin:
    return margin_of(row, recorded(study.record, "pruning", "target", "keep_metric"))


def findings(study: Study) -> Iterator[Finding]:
    """What the plan removes, and what that does on the split that nothing was chosen on."""
    table = study.tables.get("front")
    rows = [] if table is None else table[table["is_chosen"].astype(bool)].to_dict("records")
    if table is None or not rows:
        return
    row = rows[0]
    metric, count = metric_name(study, "pruning"), examples_of(study, "pruning")
    split = plain(recorded(study.record, "pruning", "reported_on", "split") or "another split", 30)
    keep = recorded(study.record, "pruning", "target", "keep_metric")
    time = [finite(row[name]) for name in ("time", "time_low", "time_high")]
    faster = f" and the model is {times_as_fast(*time)}" if all(map(math.isfinite, time)) else ""
    whole = int(row["removed"]) + int(row["left"])
    sentence = (
        f"{int(row['removed'])} of {whole} heads are cut{faster}: {metric} on {split} is {row['metric']:.4f}"
        f"{_intact(study)}, {said_of_change(row, count, keep)}{_others(table, row, margin_of(row, keep), count, split)}"
    )
    yield Finding("cut", sentence, (), kind="cut", strength=change_strength(row))
    yield from _saved(study, metric, count, keep)
    if warning := recorded(study.record, "pruning", "warning"):
        yield Finding("cut", plain(warning, 300), (), kind="cut", is_clear=False)


def _others(
    table: pd.DataFrame, chosen: dict[Any, Any], margin: Margin, count: int | None, split: str
) -> str:
    """The largest set that is shown to stay within the allowed loss, if that is another one than the set cut.

    A smaller set is told of only if the one cut is not shown to stay within it.
    """
    is_kept = verdict_in(chosen, margin, count).kind == "kept"
    least = int(chosen["removed"]) + 1 if is_kept else 1
    rows = [
        row
        for row in table.to_dict("records")
        if int(row["removed"]) >= least and not row["is_chosen"]
    ]
    most = largest_kept(rows, margin, count)
    if most is not None:
        named = plain(most["repair"], 30)
        repair, change = (
            f", repaired by {named}," if named else "",
            change_of(dict(most)).text(sign=True),
        )
        return f"; removing {int(most['removed'])}{repair} stays within it: {change}; {picked_on(split)}"
    return "" if is_kept else "; no reported set is shown to stay within it"


def _intact(study: Study) -> str:
    """What the whole model has, to be compared with."""
    metric = recorded(study.record, "pruning", "metric")
    value = (
        recorded(study.record, "pruning", "intact", "report", metric, "value")
        if isinstance(metric, str)
        else None
    )
    return f" ({value:.4f} with all heads)" if isinstance(value, float) else ""


def _saved(study: Study, metric: str, count: int | None, keep_metric: Any) -> Iterator[Finding]:
    """What repairs and further training gave back."""
    stages = recorded(study.record, "pruning", "saved", "stages")
    if not isinstance(stages, dict) or len(stages) < 2:
        return
    last, measured = list(stages.items())[-1]
    told = " and ".join(plain(stage, 20) for stage in list(stages)[1:])
    reached = measured["metrics"][recorded(study.record, "pruning", "metric")]["value"]
    said = "trained again" if last == "recovered" else f"mended ({told})"
    change = {name: measured["change"][of] for name, of in CHANGE.items()}
    told = said_of_change({"metric": reached} | change, count, keep_metric)
    yield Finding("cut", f"As it is saved, {said}: {metric} {reached:.4f}, {told}", (), kind="cut")


def _fact(record: Mapping[str, Any]) -> str:
    told = record["pruning"]
    if told.get("search") == "gates":
        return ""  # said of the gates
    sides = [recorded(told, side, "split") for side in ("selected_on", "reported_on")]
    where = (
        f", chosen on {plain(sides[0], 30)} and reported on {plain(sides[1], 30)}"
        if all(sides)
        else ""
    )
    return f"what {plain(told.get('task'), 40)} can do without (search: {plain(told.get('search'), 30)}){where}"


SECTION = Section(
    figures={20: Front},
    parts={20: part},
    findings={30: findings},
    facts={50: Fact("pruning", _fact)},
)
