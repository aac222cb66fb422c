"""Effect of removing each head: layers x heads with stars for significance, as in Song's figure; table and findings."""

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
from headscope.report.finding import (
    MOST_NAMED,
    Finding,
    Headline,
    head_estimate,
    join_details,
    short_number,
)
from headscope.report.run_facts import ENOUGH_TEXTS
from headscope.report.scale import scale_of, title_of
from headscope.report.section import Fact, Section, needs_table
from headscope.report.shared_heads import HeadKey, count_heads, count_text, head_key, keys_of
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
    CellMaker,
    Columns,
    Part,
    count_cell,
    decimals_for,
    head_cell,
    interval_column,
    is_missing,
    p_cell,
    rows_of,
)
from headscope.report.text import group_digits, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

MATTER = "Which heads matter"
COARSE = (
    0.1  # share of the loss: if only larger changes could be detected, there were too few examples
)
TABLE = "significance"
SMALL = 0.01  # smaller values are shown in thousandths, since they would not fit into their cells
WORSE = {
    LOSS: "above 0 (orange) the model is worse without the head",
    METRIC: "below 0 (orange) the model is worse without the head",
}


class Ablation(StudyFigure):
    """The change when each head is removed, all stacks side by side on one scale with 0 in the middle."""

    def __init__(self, statistic: str) -> None:
        self.statistic = self.name = statistic
        self.statistics = (statistic,)
        self.title = title_of(statistic)
        self.caption = (
            f"A number is the value with the head ablated minus the value of the unpruned model: {WORSE[statistic]}. "
            f"★: significant, that is p (Holm), corrected for testing all heads, is below {ALPHA:g}. Significance "
            "also depends on the noise, so a small change can be significant and a large one not. Rows are layers "
            "(0 is next to the input), columns are heads. Grey cells have no value."
        )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Ablation]:
        return [cls(LOSS), cls(METRIC)]

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, self.statistic)
        grids = [grid_of(study, self.statistic, stack) for stack in stacks]
        values = np.concatenate([grid.ravel() for grid in grids])
        is_small = np.nanmax(np.abs(values)) < SMALL
        factor = 1000 if is_small else 1
        scale = scale_of(self.statistic, factor * values)
        unit = f"change of {metric_of(study) if self.statistic == METRIC else 'loss'}"  # not all losses are in nats
        unit += ", in thousandths" if is_small else ""
        panels = [Panel(stack, factor * grid) for stack, grid in zip(stacks, grids, strict=True)]
        subtitle = f"{model_name(study)}, {task_of(study)} · {WORSE[self.statistic]}"
        starred = {stack: stars_of(study, self.statistic, stack) for stack in stacks}
        if TABLE in study.tables:
            count = sum(int(stars.sum()) for stars in starred.values())
            tests = f"{ALPHA:g}, Holm over {int(np.isfinite(values).sum())} heads"
            subtitle += f" · ★ significant ({tests}): {count}"
        figure = draw_panels(panels, scale, self.title, subtitle, unit)
        for ax, stack in zip(figure.axes, stacks, strict=False):
            _draw_stars(ax, starred[stack])
        return figure


def stars_of(study: Study, statistic: str, stack: str) -> NDArray[np.bool_]:
    """[layer, head]: whether the change is significant; false without a test."""
    stars = np.zeros(shape_of(study, stack), dtype=bool)
    for row in records_of(study, TABLE):
        is_here = row["stack"] == stack and row["statistic"] == statistic
        if is_here and row["is_significant"] is True:
            stars[int(row["layer"]), int(row["head"])] = True
    return stars


def task_of(study: Study) -> str:
    """The task as recorded, with the ablation mode if heads were not removed."""
    task = plain(entry_of(study.record, "importance", "task") or "a task", 40)
    mode = entry_of(study.record, "importance", "mode")
    return f"{task}, {plain(mode, 20)} ablation" if mode not in (None, "zero") else task


def metric_of(study: Study) -> str:
    """The name of the task's metric."""
    return _of_importance(study, "metric")


def _draw_stars(ax: Axes, starred: NDArray[np.bool_]) -> None:
    """Draw stars in the corner of cells that show their value, else in the middle.

    A star is dark with a pale rim, so that it is legible on any colour.
    """
    layers, heads = np.nonzero(starred)
    right, down, size = (0.83, 0.18, 38) if ax.texts else (0.5, 0.5, 34)
    star: dict[str, Any] = {"marker": "*", "color": ON_LIGHT, "edgecolors": ON_DARK}
    star |= {"linewidths": 0.5, "zorder": 5, "clip_on": False, "label": "significant"}
    with style():
        ax.scatter(heads + right, layers + down, s=size, **star)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    """A row for each head: the changes when it is removed, the largest change of loss first."""
    records = table.to_dict("records")
    losses, metrics = (
        {head_key(row): row for row in records if row["statistic"] == statistic}
        for statistic in (LOSS, METRIC)
    )
    columns: Columns = {
        "head": lambda row: head_cell(study, head_key(row)),
        **_change_columns(losses, "loss", ""),
        **_change_columns(metrics, "metric", ", metric"),
        "examples": lambda row: count_cell(row["count"]),
        "stable after": lambda row: count_cell(row["settled_at"]),
    }
    loss_tests, metric_tests = (
        " and ".join(sorted({plain(row["test"], 20) for row in rows.values()}))
        for rows in (losses, metrics)
    )
    note = (
        f"Task: {_of_importance(study, 'task')}; metric: {_of_importance(study, 'metric')}. Each head is "
        "ablated alone. A change is the value with the head ablated minus the value of the unpruned model; the "
        "largest change of loss comes first. p belongs to the test of one head "
        f"(loss: {loss_tests}; metric: {metric_tests}). p (Holm) is corrected for "
        f"testing all heads. ★: p (Holm) is below {ALPHA:g}. {UNCORRECTED} "
        "“stable after” is the number of examples after which the verdict on the loss did not change again."
    )
    figures = ("ablation", "masking", *(() if "agreement" in study.tables else ("agreement",)))
    rows = rows_of(sorted(losses.values(), key=_by_size), columns)
    return Part("significance", MATTER, note, tuple(columns), rows, figures=figures)


def _change_columns(rows: dict[HeadKey, dict[Any, Any]], name: str, suffix: str) -> Columns:
    """The change of each head, its p value, the same after Holm's correction, and a star if that is significant."""
    decimals = decimals_for(row["value"] for row in rows.values())

    def of_head(make: CellMaker) -> CellMaker:
        return lambda row: make(rows[key]) if (key := head_key(row)) in rows else Cell(NONE)

    def star(row: dict[Any, Any]) -> Cell:
        is_significant = row["is_significant"] is True
        return Cell("★" if is_significant else "", float(is_significant))

    return {
        f"change of {name}": of_head(interval_column("value", decimals=decimals)),
        f"p{suffix}": of_head(lambda row: p_cell(row.get("p"))),
        f"p (Holm){suffix}": of_head(lambda row: p_cell(row["p_adjusted"])),
        f"{name} ★": of_head(star),
    }


def _by_size(row: dict[Any, Any]) -> float:
    """Sorts the largest change first, whatever its sign, and missing ones last."""
    return math.inf if is_missing(row["value"]) else -abs(row["value"])


def _of_importance(study: Study, key: str) -> str:
    """An entry of the run record about the importance, or `the KEY`."""
    return plain(entry_of(study.record, "importance", key) or f"the {key}", 40)


def chance_warning(study: Study) -> Iterator[Finding]:
    """A warning that the model is not better than chance on the task; it precedes all findings about heads."""
    for entry in ("importance", "pruning"):
        if warning := entry_of(study.record, entry, "knows_nothing"):
            sentence = plain(warning, 400)
            yield Finding("", sentence[:1].upper() + sentence[1:], (), kind="warning")


@needs_table(TABLE)
def removals(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The heads whose ablation changes the loss significantly, largest change first; else the largest change."""
    rows = table[(table["statistic"] == LOSS) & table["value"].notna()]
    if not len(rows):
        return
    task = _of_importance(study, "task")
    is_fixed = entry_of(study.record, "importance", "mode") == "fixed"
    when = "it alone gets a fixed pattern" if is_fixed else "it is ablated alone"
    decimals = decimals_for(rows["value"])
    rows = rows.sort_values("value", key=abs, ascending=False, kind="stable")
    sure = rows[rows["is_significant"].eq(True)]  # empty without tests
    shown = (sure if len(sure) else rows[:1]).to_dict("records")
    heads = [head_estimate(study, row, "value", decimals) for row in shown]
    sentence = f"No head changes the {task} loss significantly when {when}"
    if len(sure):
        many = count_text(study, keys_of(sure), keys_of(rows))
        verb = "changes" if count_heads(study, keys_of(sure)) == 1 else "change"
        each = when if verb == "changes" else when.replace("it", "each", 1)
        sentence = f"{many} {verb} the {task} loss significantly when {each}"
    strength = heads[0].strength(0.0) if len(sure) else 0.0
    more = max(len(heads) - MOST_NAMED, 0)
    ends = "intervals are" if len(sure) > 1 else "the interval is"
    meaning = "worse with the pattern" if is_fixed else "worse without the head"
    after = (
        f" (change of the loss; above 0 the model is {meaning}); {ends} not corrected for testing {len(rows)} heads, "
        "but significance is (Holm)"
    )
    after += _resolution(study, rows, is_found=len(sure) > 0)
    first = tuple(heads[:MOST_NAMED])
    is_null = not len(sure)
    headline = (
        _nothing_headline(study, rows, when) if is_null else _headline(study, rows, sure, decimals)
    )
    yield Finding(
        LOSS,
        sentence,
        first,
        more,
        kind="importance",
        strength=strength,
        after=after,
        headline=headline,
        is_null=is_null,
    )


def _headline(study: Study, rows: pd.DataFrame, sure: pd.DataFrame, decimals: int) -> Headline:
    """The head that is needed most; if none is, the head without which the loss falls most.

    The change is a percentage of the loss of the unpruned model, if that is known.
    """
    intact = entry_of(study.record, "importance", "intact", "loss", "value")
    worse = sure[sure["value"] > 0]
    is_needed = len(worse) > 0
    row = (worse if is_needed else sure).to_dict("records")[0]
    head = head_estimate(study, row, "value", decimals)
    is_fixed = entry_of(study.record, "importance", "mode") == "fixed"
    means = "gets a fixed pattern" if is_fixed else "is ablated"
    change = "rises" if is_needed else "falls"
    before = f"{'matters most' if is_needed else 'is not needed'}: when it {means}, the "
    before += f"{_of_importance(study, 'task')} loss {change} by"
    low, high = (short_number(end, decimals, sign=True) for end in (head.low, head.high))
    number, interval = (
        short_number(abs(head.value), decimals),
        f"95\u00a0% interval {low} to {high}",
    )
    verb = "changes" if count_heads(study, keys_of(sure)) == 1 else "change"
    matters = f"{count_text(study, keys_of(sure), keys_of(rows))} {verb} the loss significantly"
    matters += f", {count_heads(study, keys_of(worse))} for the worse"
    if isinstance(intact, float) and intact > 0:
        interval = f"by {number} from {intact:.3f}, {interval}"
        number = f"{100 * abs(head.value) / intact:.0f}\u00a0%"
    return Headline(before, number, "", join_details(interval, matters), head.head)


def _nothing_headline(study: Study, rows: pd.DataFrame, when: str) -> Headline | None:
    """That no single head matters, with the smallest change that could be detected; None if that is unknown."""
    count = int(rows["count"].median())
    least = least_significant(rows["low"], rows["high"], count)
    if not math.isfinite(least):
        return None
    intact = entry_of(study.record, "importance", "intact", "loss", "value")
    share = (
        f" ({100 * least / intact:.0f}\u00a0% of it)"
        if isinstance(intact, float) and intact > 0
        else ""
    )
    return Headline(
        f"No head changes the {_of_importance(study, 'task')} loss significantly when {when}; changes below",
        short_number(least, decimals_for([least])),
        f"{share} could not be detected".strip(),
        f"for the median head, with {group_digits(count)} examples, corrected for testing {len(rows)} heads",
    )


def _resolution(study: Study, rows: pd.DataFrame, *, is_found: bool) -> str:
    """The smallest change that could have been significant; empty if some were and there were enough examples."""
    count = int(rows["count"].median())
    least = least_significant(rows["low"], rows["high"], count)
    intact = entry_of(study.record, "importance", "intact", "loss", "value")
    share = least / intact if isinstance(intact, float) and intact > 0 else math.nan
    is_coarse = count < ENOUGH_TEXTS or share > COARSE
    if not math.isfinite(least) or (is_found and not is_coarse):
        return ""
    few = "too few to detect small changes: " if is_coarse else ""
    text = f"; with {count} examples, {few}a significant change of the median head is larger than "
    text += short_number(least, decimals_for([least]))
    text += f" ({100 * share:.0f} % of the loss)" if share > 0 else ""
    if not is_found:  # the head with the largest change is often a noisy one
        first = rows[:1]
        count = int(first["count"].iloc[0])
        own = least_significant(first["low"], first["high"], count, tests=len(rows))
        if math.isfinite(own):
            text += (
                f"; of the head named above, larger than {short_number(own, decimals_for([own]))}"
            )
    return text


def _fact(record: Mapping[str, Any]) -> str:
    task, mode, count = (entry_of(record, "importance", of) for of in ("task", "mode", "examples"))
    fixed, removed = "how much the loss changes with fixed patterns", "which heads matter"
    on = f", on {group_digits(count)} examples" if count is not None else ""
    return f"{fixed if mode == 'fixed' else removed} for {plain(task or 'a task', 40)}{on}"


SECTION = Section(
    figures={44: Ablation},
    parts={60: part},
    findings={10: chance_warning, 40: removals},
    facts={40: Fact("importance", _fact)},
)
