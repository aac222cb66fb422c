"""What does each head's removal change? Layers x heads, stars where it is significant, as in Song's figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.significance import ALPHA, least_significant
from headscope.report.drawing.heat_maps import Panel, draw_panels
from headscope.report.drawing.palette import ON_DARK, ON_LIGHT
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import style
from headscope.report.finding import MOST_NAMED, Finding, head_estimate, short_number
from headscope.report.run_facts import ENOUGH_TEXTS
from headscope.report.scale import scale_of, title_of
from headscope.report.section import Fact, Section, needs_table
from headscope.report.shared_heads import count_text, keys_of
from headscope.report.study_access import (
    entry_of,
    grid_of,
    model_name,
    records_of,
    shape_of,
    stacks_with,
)
from headscope.report.table_cells import (
    NONE,
    UNCORRECTED,
    Cell,
    Part,
    count_cell,
    decimals_for,
    head_cell,
    interval_cell,
    is_missing,
    optional_head_key,
    p_cell,
)
from headscope.report.text import group_digits, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

MATTER = "Which heads matter"
COARSE = 0.1  # of the loss: where only larger changes could be seen, there were too few examples

TABLE = "significance"
SMALL = 0.01  # below, values are shown in thousandths: they would not fit into their cells
WORSE = {
    LOSS: "above 0 (orange): worse without the head",
    METRIC: "below 0 (orange): worse without the head",
}


class Ablation(StudyFigure):
    """The change by removing each head, all stacks side by side on one scale with 0 in the middle."""

    def __init__(self, statistic: str) -> None:
        self.statistic = self.name = statistic
        self.statistics = (statistic,)
        self.title = title_of(statistic)
        self.caption = (
            f"Ablated minus intact; {WORSE[statistic]}. A star means that p (Holm), corrected for "
            f"testing all heads, is below {ALPHA:g}, nothing else: a pale cell may have one and a dark cell none. "
            "Rows are layers, 0 (next to the input) at the top; columns are heads; grey: no value."
        )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Ablation]:
        return [cls(LOSS), cls(METRIC)]

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, self.statistic)
        grids = [grid_of(study, self.statistic, stack) for stack in stacks]
        values = np.concatenate([grid.ravel() for grid in grids])
        factor = 1000 if np.nanmax(np.abs(values)) < SMALL else 1
        scale = scale_of(self.statistic, factor * values)
        unit = f"change of {metric_of(study) if self.statistic == METRIC else 'loss'}"  # not all losses are in nats
        if factor > 1:
            unit = f"{unit}, in thousandths"
        panels = [Panel(stack, factor * grid) for stack, grid in zip(stacks, grids, strict=True)]
        subtitle = f"{model_name(study)}, {task_of(study)} · {WORSE[self.statistic]}"
        starred = {stack: stars_of(study, self.statistic, stack) for stack in stacks}
        if TABLE in study.tables:
            count = sum(int(one.sum()) for one in starred.values())
            tested = int(np.isfinite(values).sum())
            subtitle += (
                f" · ★ significant ({ALPHA:g}, Holm over {tested} heads), nothing else: {count}"
            )
        figure = draw_panels(panels, scale, self.title, subtitle, unit)
        for ax, stack in zip(figure.axes, stacks, strict=False):
            _draw_stars(ax, starred[stack])
        return figure


def stars_of(study: Study, statistic: str, stack: str) -> NDArray[np.bool_]:
    """[layer, head]: whether the change is significant; false where there was no test."""
    stars = np.zeros(shape_of(study, stack), dtype=bool)
    for row in records_of(study, TABLE):
        if (
            row["stack"] == stack
            and row["statistic"] == statistic
            and row["is_significant"] is True
        ):
            stars[int(row["layer"]), int(row["head"])] = True
    return stars


def task_of(study: Study) -> str:
    """The task as recorded, and how heads were ablated where that is not by removing them."""
    task = plain(entry_of(study.record, "importance", "task") or "a task", 40)
    mode = entry_of(study.record, "importance", "mode")
    return f"{task}, {plain(mode, 20)} ablation" if mode not in (None, "zero") else task


def metric_of(study: Study) -> str:
    """What the task's metric is called."""
    return plain(entry_of(study.record, "importance", "metric") or "the metric", 40)


def _draw_stars(ax: Axes, starred: NDArray[np.bool_]) -> None:
    """In the corner of a cell that has its value, else in the middle; dark with a pale rim, legible on any colour."""
    layers, heads = np.nonzero(starred)
    right, down, size = (0.83, 0.18, 38) if ax.texts else (0.5, 0.5, 34)
    star: dict[str, Any] = {"marker": "*", "color": ON_LIGHT, "edgecolors": ON_DARK}
    above: dict[str, Any] = {"linewidths": 0.5, "zorder": 5, "clip_on": False}
    with style():
        ax.scatter(heads + right, layers + down, s=size, label="significant", **star, **above)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    """A row a head: what its removal changes, the largest change of loss first."""
    records = table.to_dict("records")
    of_metric = {optional_head_key(row): row for row in records if row["statistic"] == METRIC}
    of_loss = sorted(
        (row for row in records if row["statistic"] == LOSS), key=lambda row: _size(row["value"])
    )
    loss, metric = (
        decimals_for(table[table["statistic"] == name]["value"]) for name in (LOSS, METRIC)
    )
    rows = [
        [
            head_cell(study, optional_head_key(row)),
            interval_cell(row["value"], row["low"], row["high"], loss),
            *_tested(row),
            *_metric_cells(of_metric.get(optional_head_key(row)), metric),
            count_cell(row["count"]),
            count_cell(row["settled_at"]),
        ]
        for row in of_loss
    ]
    tests = {
        name: sorted({plain(row["test"], 20) for row in records if row["statistic"] == name})
        for name in (LOSS, METRIC)
    }
    note = (
        f"Task: {_of_importance(study, 'task')}; metric: {_of_importance(study, 'metric')}. Ablated minus intact when "
        "the head is removed alone, the largest change of loss first. p is that of the head's own test "
        f"(loss: {' and '.join(tests[LOSS])}; metric: {' and '.join(tests[METRIC])}), p (Holm) is corrected for "
        f"testing all heads. A star means that p (Holm) is below {ALPHA:g}, nothing else. {UNCORRECTED} "
        "Settled: after so many examples the verdict on the loss never changed again."
    )
    columns = (
        *("head", "change of loss", "p", "p (Holm)", "loss ★"),
        *("change of metric", "p, metric", "p (Holm), metric", "metric ★", "examples", "settled"),
    )
    figures = ("ablation", "masking", *(() if "agreement" in study.tables else ("agreement",)))
    return Part("significance", MATTER, note, columns, rows, "significance.csv", figures)


def _metric_cells(row: dict[Any, Any] | None, decimals: int) -> tuple[Cell, ...]:
    if row is None:
        return (Cell(NONE),) * 4
    return interval_cell(row["value"], row["low"], row["high"], decimals), *_tested(row)


def _tested(row: dict[Any, Any]) -> tuple[Cell, ...]:
    """The p-value of the test, the same after Holm's correction, and a star if that is significant."""
    is_significant = row["is_significant"] is True
    return (
        p_cell(row.get("p")),
        p_cell(row["p_adjusted"]),
        Cell("★" if is_significant else "", float(is_significant)),
    )


def _size(value: Any) -> float:
    """To sort the largest first, whatever their sign, and what is missing last."""
    return math.inf if is_missing(value) else -abs(value)


def _of_importance(study: Study, key: str) -> str:
    return plain(entry_of(study.record, "importance", key) or f"the {key}", 40)


def knows_nothing(study: Study) -> Iterator[Finding]:
    """That the model is at chance, before anything is said of its heads."""
    for part in ("importance", "pruning"):
        if told := entry_of(study.record, part, "knows_nothing"):
            sentence = plain(told, 400)
            sentence = sentence[:1].upper() + sentence[1:]
            yield Finding("", sentence, (), kind="importance", topic="chance")


@needs_table(TABLE)
def removals(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The heads whose removal changes the loss significantly, the largest change first; or the largest change."""
    rows = table[(table["statistic"] == LOSS) & table["value"].notna()]
    if not len(rows):
        return
    task = _of_importance(study, "task")
    is_fixed = entry_of(study.record, "importance", "mode") == "fixed"
    doing, noun = ("Fixing", "pattern in its place") if is_fixed else ("Removing", "removal")
    decimals = decimals_for(rows["value"])
    rows = rows.sort_values("value", key=abs, ascending=False, kind="stable")
    sure = rows[rows["is_significant"].eq(True)]  # empty where nothing was tested
    shown = (sure if len(sure) else rows[:1]).to_dict("records")
    named = [head_estimate(study, row, "value", decimals) for row in shown]
    sentence = f"No head's {noun} alone changes the loss of {task} significantly; the largest change is that of"
    if len(sure):
        many = count_text(study, keys_of(sure), keys_of(rows))
        sentence = (
            f"{doing} one head alone changes the loss of {task} significantly for {many} "
            "(above 0: worse without it), most of all for"
        )
    strength = named[0].strength(0.0) if len(sure) else 0.0
    more = max(len(named) - MOST_NAMED, 0)
    ends = "intervals are" if len(sure) > 1 else "the interval is"
    after = f"; {ends} uncorrected, significance is by p (Holm) over {len(rows)} heads"
    after += _resolution(study, rows, is_found=len(sure) > 0)
    kept = tuple(named[:MOST_NAMED])
    yield Finding(LOSS, sentence, kept, more, kind="importance", strength=strength, after=after)


def _resolution(study: Study, rows: pd.DataFrame, *, is_found: bool) -> str:
    """The smallest change that so many examples could have shown; nothing where there were enough and some is shown."""
    count = int(rows["count"].median())
    least = least_significant(rows["low"], rows["high"], count)
    intact = entry_of(study.record, "importance", "intact", "loss", "value")
    share = least / intact if isinstance(intact, float) and intact > 0 else math.nan
    is_coarse = count < ENOUGH_TEXTS or share > COARSE
    if not math.isfinite(least) or (is_found and not is_coarse):
        return ""
    told = (
        f"so few examples ({count}) could hardly show any" if is_coarse else f"on {count} examples"
    )
    told += f": to be significant, a change had to be beyond {short_number(least, decimals_for([least]))}"
    told += f" ({100 * share:.0f} % of the loss)" if share > 0 else ""
    told += " at the median head"
    if not is_found:  # the head that is named is a noisy one, often as not
        first = rows[:1]
        count = int(first["count"].iloc[0])
        own = least_significant(first["low"], first["high"], count, tests=len(rows))
        at_this = f", beyond {short_number(own, decimals_for([own]))} at this one"
        told += at_this if math.isfinite(own) else ""
    return f"; {told}"


def _fact(record: Mapping[str, Any]) -> str:
    task, mode, count = (entry_of(record, "importance", of) for of in ("task", "mode", "examples"))
    fixed, removed = "what each head's fixed pattern in its place changes", "which heads matter"
    on = f", on {group_digits(count)} examples" if count is not None else ""
    return f"{fixed if mode == 'fixed' else removed} for {plain(task or 'a task', 40)}{on}"


SECTION = Section(
    figures={44: Ablation},
    parts={60: part},
    findings={10: knows_nothing, 40: removals},
    facts={40: Fact("importance", _fact)},
)
