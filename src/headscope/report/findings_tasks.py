"""Whether heads matter, and what can be cut: findings of `headscope importance`, `prune` and `gate`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.ablation.ablation_results import LOSS
from headscope.ablation.noninferiority import Margin, largest_kept, picked_on, verdict_in
from headscope.ablation.significance import least_significant
from headscope.model.model_card import times_as_fast
from headscope.report.cells import decimals_for
from headscope.report.facts import ENOUGH_TEXTS
from headscope.report.finding import (
    MOST_NAMED,
    Finding,
    ceiling_of,
    change_of,
    excludes,
    finite,
    margin_of,
    measured_in,
    read_measured,
    said_of_change,
    short_number,
    strength_of,
    too_noisy,
)
from headscope.report.grids import plain, recorded
from headscope.report.shared_heads import counted

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

CHANGE = {
    "metric_change": "value",
    "change_low": "low",
    "change_high": "high",
}  # of a stage, as in front.csv
COARSE = 0.1  # of the loss: where only larger changes could be seen, there were too few examples


def knows_nothing(study: Study) -> Iterator[Finding]:
    """That the model is at chance, before anything is said of its heads."""
    for part in ("importance", "pruning"):
        if told := recorded(study.record, part, "knows_nothing"):
            sentence = plain(told, 400)
            yield Finding(
                "", sentence[:1].upper() + sentence[1:], (), kind="importance", topic="chance"
            )


def removals(study: Study) -> Iterator[Finding]:
    """The heads whose removal changes the loss significantly, the largest change first; or the largest change."""
    table = study.tables.get("significance")
    rows = None if table is None else table[(table["statistic"] == LOSS) & table["value"].notna()]
    if rows is None or not len(rows):
        return
    told = study.record.get("importance")
    task = plain(recorded(study.record, "importance", "task") or "the task", 40)
    is_fixed = isinstance(told, dict) and told.get("mode") == "fixed"
    doing, noun = ("Fixing", "pattern in its place") if is_fixed else ("Removing", "removal")
    decimals = decimals_for(rows["value"])
    rows = rows.sort_values("value", key=abs, ascending=False, kind="stable")
    sure = rows[rows["is_significant"].eq(True)]  # empty where nothing was tested
    named = [
        measured_in(study, row, "value", decimals)
        for row in (sure if len(sure) else rows[:1]).to_dict("records")
    ]
    sentence = f"No head's {noun} alone changes the loss of {task} significantly; the largest change is that of"
    if len(sure):
        places = (
            [(row["stack"], row["layer"], row["head"]) for row in of.to_dict("records")]
            for of in (sure, rows)
        )
        sentence = (
            f"{doing} one head alone changes the loss of {task} significantly for {counted(study, *places)} "
            "(above 0: worse without it), most of all for"
        )
    strength = strength_of(named[0].value, named[0].low, named[0].high, 0.0) if len(sure) else 0.0
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
    intact = recorded(study.record, "importance", "intact", "loss", "value")
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
        own = least_significant(
            rows["low"][:1], rows["high"][:1], int(rows["count"].iloc[0]), tests=len(rows)
        )
        told += (
            f", beyond {short_number(own, decimals_for([own]))} at this one"
            if math.isfinite(own)
            else ""
        )
    return f"; {told}"


def cut(study: Study) -> Iterator[Finding]:
    """What the plan removes, and what that does on the split that nothing was chosen on."""
    table = study.tables.get("front")
    rows = [] if table is None else table[table["is_chosen"].astype(bool)].to_dict("records")
    if table is None or not rows:
        return
    row = rows[0]
    metric, split = _judged(study)
    change, keep = change_of(row), recorded(study.record, "pruning", "target", "keep_metric")
    count = recorded(study.record, "pruning", "reported_on", "examples")
    count = count if isinstance(count, int) else None
    time = [finite(row[name]) for name in ("time", "time_low", "time_high")]
    faster = f" and the model is {times_as_fast(*time)}" if all(map(math.isfinite, time)) else ""
    whole = int(row["removed"]) + int(row["left"])
    sentence = (
        f"{int(row['removed'])} of {whole} heads are cut{faster}: {metric} on {split} is {row['metric']:.4f}"
        f"{_intact(study)}, {said_of_change(row, count, keep)}{_others(table, row, margin_of(row, keep), count, split)}"
    )
    yield Finding(
        "cut",
        sentence,
        (),
        kind="cut",
        strength=strength_of(change.value, change.low, change.high, 0.0),
    )
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


def _judged(study: Study) -> tuple[str, str]:
    """The metric, and the split that is reported on."""
    metric = plain(recorded(study.record, "pruning", "metric") or "the metric", 30)
    return metric, plain(
        recorded(study.record, "pruning", "reported_on", "split") or "another split", 30
    )


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


def cheap(study: Study) -> Iterator[Finding]:
    """The cheap importance that ranks heads most like exact removal."""
    table = study.tables.get("agreement")
    rows = (
        table[(table["importance"] != "random") & table["correlation"].notna()]
        if table is not None
        else None
    )
    if rows is None or not len(rows):
        yield from noisy_ranks(study)
        return
    best = rows.nlargest(1, "correlation").to_dict("records")[0]
    if noisy := too_noisy(best):
        sentence = f"How well cheap importances rank heads cannot be told: {noisy}"
        yield Finding("", sentence, (), kind="importance", is_clear=False, topic="cheap")
        return
    found, ceiling = read_measured(best, ("correlation", "low", "high")), ceiling_of(best)
    sentence = (
        f"Of the {len(rows)} cheap importances, {plain(best['importance'], 40)} ranks heads most like exact removal: "
        f"Spearman's correlation {found.text()}. Both were measured on the same {int(best['count'])} examples and "
        "share their noise"
    )
    is_noise = found.value > ceiling
    if is_noise:
        sentence += (
            f", and the true importances, which do not, would reach only {short_number(ceiling)}: what is above that "
            "is shared noise; take more examples"
        )
    else:
        sentence += f"; the true importances, which do not, would reach {short_number(ceiling)}"
    strength = strength_of(found.value, found.low, found.high, 0.0)
    is_clear = excludes(found, 0.0) and not is_noise
    yield Finding(
        "", sentence, (), kind="importance", is_clear=is_clear, strength=strength, topic="cheap"
    )


def noisy_ranks(study: Study) -> Iterator[Finding]:
    """That exact removal is too noisy to rank heads by, for each stack of which that is so."""
    table = study.tables.get("ceilings")
    rows = [] if table is None else table.to_dict("records")
    for row in rows:
        if noisy := too_noisy(row):
            where = f" of the {plain(row['stack'])} stack" if len(rows) > 1 else ""
            sentence = f"The order of the heads{where} by exact removal is unreliable: {noisy}"
            yield Finding("", sentence, (), kind="importance", is_clear=False, topic="cheap")
