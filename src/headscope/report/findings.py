"""What stands out in a study, in sentences that are true by construction: each is read off the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headscope.importances.deltas import LOSS
from headscope.report.cards import by_gain
from headscope.report.grids import plain, recorded, stacks_of, stacks_with
from headscope.report.parts import DECIMALS, decimals_for

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

BEST_RELATIONS = 3
MOST_NAMED = 6  # heads named in one sentence; the rest are counted


class Measured(NamedTuple):
    """One row of the table, with the address a reader uses."""

    head: str
    value: float
    low: float
    high: float
    decimals: int = DECIMALS

    def text(self) -> str:
        """`0.98 [0.97, 0.99]`, or the value alone where there is no interval; nothing where the head is only named."""
        if math.isnan(self.value):
            return ""
        if math.isfinite(self.low) and math.isfinite(self.high):
            low, high = (_short(end, self.decimals) for end in (self.low, self.high))
            return f"{_short(self.value, self.decimals)} [{low}, {high}]"
        return _short(self.value, self.decimals)


@dataclass(frozen=True)
class Finding:
    """A sentence, then the heads it is about with their numbers, if any, then how many more there are."""

    statistic: str
    sentence: str
    heads: tuple[Measured, ...]
    more: int = 0

    def __str__(self) -> str:
        named = "; ".join(f"{head.head}: {head.text()}" if head.text() else head.head for head in self.heads)
        return f"{self.sentence} {named}".rstrip() + f"{f' and {self.more} more' if self.more else ''}."


def findings_of(study: Study) -> list[Finding]:
    """Positional heads, sinks, the broadest and the surest head, what was cut, removals, relations and the rest.

    As far as the study has their statistics and tables.
    """
    found = []
    for stack in stacks_of(study):
        where = "" if len(stacks_of(study)) == 1 else f" of the {plain(stack)} stack"
        for rule in RULES:
            finding = rule(study, stack, where)
            if finding is not None:
                found.append(finding)
    return [
        *found,
        *_cut(study),
        *_removals(study),
        *_cheap(study),
        *_relations(study),
        *_coreference(study),
        *_rare_words(study),
        *_twins(study),
    ]


Rule = Callable[["Study", str, str], Finding | None]


def _majority(statistic: str, target: str) -> Rule:
    """Heads that give more than half of their attention to one place, or the nearest to it."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        rows = _ranked(study, statistic, stack)
        if not rows or rows[0].value == 0:  # a causal stack cannot look ahead
            return None
        above = [row for row in rows if row.value > 0.5]
        if above:
            many = "1 head" if len(above) == 1 else f"{len(above)} heads"
            verb = "gives more than half of its" if len(above) == 1 else "give more than half of their"
            sentence = f"{many}{where} {verb} attention to {target}:"
            return Finding(statistic, sentence, tuple(above[:MOST_NAMED]), max(len(above) - MOST_NAMED, 0))
        sentence = f"No head{where} gives more than half of its attention to {target}; the most is that of"
        return Finding(statistic, sentence, tuple(rows[:1]))

    return rule


def _extreme(statistic: str, words: str, *, least: bool = False) -> Rule:
    """The head at one end of a statistic."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        rows = _ranked(study, statistic, stack)
        if len(rows) < 2:
            return None
        return Finding(statistic, words.format(where=where), (rows[-1] if least else rows[0],))

    return rule


RULES: tuple[Rule, ...] = (
    _majority("previous", "the previous token"),
    _majority("next", "the next token"),
    _extreme("cls", "The most attention to the classification token among the heads{where} is that of"),
    _extreme("sep", "The most attention to separators among the heads{where} is that of"),
    _extreme("punctuation", 'The most attention to "." and "," among the heads{where} is that of'),
    _extreme("entropy", "The broadest head{where}, by entropy in nats, is head"),
    _extreme("entropy", "The narrowest head{where}, by entropy in nats, is head", least=True),
    _extreme("confidence-content", "The surest head{where}, special tokens left out (mean largest weight), is head"),
)


def _removals(study: Study) -> list[Finding]:
    """The heads whose removal changes the loss significantly, the largest change first; or the largest change."""
    table = study.tables.get("significance")
    if table is None:
        return []
    rows = table[(table["statistic"] == LOSS) & table["value"].notna()]
    if not len(rows):
        return []
    task = plain(recorded(study.record, "importance", "task") or "the task", 40)
    decimals = decimals_for(rows["value"])
    rows = rows.sort_values("value", key=abs, ascending=False, kind="stable")
    sure = rows[rows["is_significant"] == True]  # noqa: E712 - empty where nothing was tested
    named = [_chosen(study, row, "value", decimals) for row in (sure if len(sure) else rows[:1]).to_dict("records")]
    sentence = f"No head's removal alone changes the loss of {task} significantly; the largest change is that of"
    if len(sure):
        sentence = (
            f"Removing one head alone changes the loss of {task} significantly for {len(sure)} of {len(rows)} heads "
            "(above 0: worse without it), most of all for"
        )
    return [Finding(LOSS, sentence, tuple(named[:MOST_NAMED]), max(len(named) - MOST_NAMED, 0))]


def _cut(study: Study) -> list[Finding]:
    """What the plan removes, and what that does on the split that nothing was chosen on."""
    table = study.tables.get("front")
    rows = [] if table is None else table[table["is_chosen"].astype(bool)].to_dict("records")
    if not rows:
        return []
    row = rows[0]
    metric = plain(recorded(study.record, "pruning", "metric") or "the metric", 30)
    split = plain(recorded(study.record, "pruning", "reported_on", "split") or "another split", 30)
    value, low, high = (_finite(row[name]) for name in ("metric_change", "change_low", "change_high"))
    change = Measured("", value, low, high, 4)
    time = Measured("", _finite(row["time"]), _finite(row["time_low"]), _finite(row["time_high"]), 2)
    sentence = (
        f"{int(row['removed'])} of {int(row['removed']) + int(row['left'])} heads are cut: {metric} on {split} is "
        f"{row['metric']:.4f}, a change of {change.text()}, and the model takes {time.text()} of the time"
    )
    found = [Finding("cut", sentence, ())]
    stages = recorded(study.record, "pruning", "saved", "stages")
    if isinstance(stages, dict) and len(stages) > 1:
        last, measured = list(stages.items())[-1]
        value, low, high = (_finite(measured["change"][name]) for name in ("value", "low", "high"))
        after = Measured("", value, low, high, 4)
        told = " and ".join(plain(stage, 20) for stage in list(stages)[1:])
        reached = measured["metrics"][recorded(study.record, "pruning", "metric")]["value"]
        said = "trained again" if last == "recovered" else f"mended ({told})"
        found.append(Finding("cut", f"As it is saved, {said}: {metric} {reached:.4f}, a change of {after.text()}", ()))
    if warning := recorded(study.record, "pruning", "warning"):
        found.append(Finding("cut", plain(warning, 300), ()))
    return found


def _cheap(study: Study) -> list[Finding]:
    """The cheap importance that ranks heads most like exact removal."""
    table = study.tables.get("agreement")
    rows = table[(table["importance"] != "random") & table["correlation"].notna()] if table is not None else None
    if rows is None or not len(rows):
        return []
    best = rows.nlargest(1, "correlation").to_dict("records")[0]
    found = Measured("", _finite(best["correlation"]), _finite(best["low"]), _finite(best["high"]))
    sentence = (
        f"Of the {len(rows)} cheap importances, {plain(best['importance'], 40)} ranks heads most like exact removal: "
        f"Spearman's correlation {found.text()}; the ceiling by split halves is {_short(best['ceiling'])}"
    )
    return [Finding("", sentence, ())]


def _relations(study: Study) -> list[Finding]:
    """The relations with the largest gains over what needs no trained head, of each the best direction."""
    table = study.tables.get("relations")
    if table is None:
        return []
    best: dict[str, dict[Any, Any]] = {}
    for row in by_gain(table):
        if row["gain"] > 0 and not str(row["relation"]).startswith("all"):
            best.setdefault(row["relation"], row)
    found = []
    for row in list(best.values())[:BEST_RELATIONS]:
        sentence = (
            f"Relation {plain(row['relation'], 60)}, {plain(row['direction'], 20)}: the best fixed offset is right in "
            f"{_short(row['baseline'])} of the pairs; the head chosen on other sentences is"
        )
        found.append(Finding("", sentence, (_chosen(study, row, "accuracy"),)))
    return found


def _coreference(study: Study) -> list[Finding]:
    table = study.tables.get("coreference")
    if table is None:
        return []
    rows = table[(table["kind"] == "all") & (table["candidates"] == "mentions") & table["accuracy"].notna()]
    found = []
    for row in rows.to_dict("records"):
        sentence = (
            f"Antecedents: the nearest mention with the same head word is right for {_short(row['head_match'])} of the "
            "mentions; the head chosen on other documents is"
        )
        found.append(Finding("antecedent", sentence, (_chosen(study, row, "accuracy"),)))
    return found


def _rare_words(study: Study) -> list[Finding]:
    table = study.tables.get("rare_words")
    rows = study.heads[(study.heads["statistic"] == "two-rarest") & study.heads["value"].notna()]
    if table is None or not len(rows) or not (table["kind"] == "two-rarest").any():
        return []
    guess = table[table["kind"] == "two-rarest"].nlargest(1, "value").iloc[0]
    sentence = (
        f"One of the two rarest words: the best simple guess ({plain(guess['baseline'], 40)}) is right in "
        f"{_short(guess['value'])} of the sentences; the head that most often points there is"
    )
    best = rows.sort_values(["value", "stack", "layer", "head"], ascending=[False, True, True, True]).to_dict("records")
    return [Finding("two-rarest", sentence, (_chosen(study, best[0], "value"),))]


def _twins(study: Study) -> list[Finding]:
    """The two heads that attend most alike."""
    table = study.tables.get("clusters")
    if table is None or not table["twin_distance"].notna().any():
        return []
    row = table.nsmallest(1, "twin_distance").to_dict("records")[0]
    other = row | {"layer": row["twin_layer"], "head": row["twin_head"]}
    sentence = f"The two heads that attend most alike, {row['twin_distance']:.2g} nats apart, are"
    return [
        Finding(
            "", sentence, tuple(Measured(_address(study, one), math.nan, math.nan, math.nan) for one in (row, other))
        )
    ]


def _chosen(study: Study, row: dict[Any, Any], value: str, decimals: int = DECIMALS) -> Measured:
    measured = _finite(row[value]), _finite(row["low"]), _finite(row["high"])
    return Measured(_address(study, row), *measured, decimals)


def _finite(value: Any) -> float:
    return math.nan if value is None else float(value)


def _address(study: Study, row: dict[Any, Any]) -> str:
    address = f"{int(row['layer'])}.{int(row['head'])}"
    return address if len(stacks_of(study)) == 1 else f"{plain(row['stack'])}.{address}"


def _ranked(study: Study, statistic: str, stack: str) -> list[Measured]:
    """The heads of a stack from the largest value down; ties in order of layer and head."""
    if stack not in stacks_with(study, statistic):
        return []
    heads = study.heads
    rows = heads[(heads["stack"] == stack) & (heads["statistic"] == statistic) & heads["value"].notna()]
    rows = rows.sort_values(["value", "layer", "head"], ascending=[False, True, True])
    return [_measured(row, one_stack=len(stacks_of(study)) == 1) for _, row in rows.iterrows()]


def _measured(row: pd.Series, *, one_stack: bool) -> Measured:
    address = f"{row['layer']}.{row['head']}"
    head = address if one_stack else f"{plain(row['stack'])}.{address}"
    return Measured(head, float(row["value"]), float(row["low"]), float(row["high"]))


def _short(value: float, decimals: int = DECIMALS) -> str:
    """Three decimals, as everywhere on the page, unless all that is compared is small."""
    return f"{value:.{decimals}f}".replace("-", "−")
