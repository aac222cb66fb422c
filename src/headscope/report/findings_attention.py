"""What heads attend to, what they do and which relations they show: findings of `headscope analyze`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from headscope.report.cards import by_gain, roles_by_head
from headscope.report.finding import (
    MOST_NAMED,
    Finding,
    Measured,
    address_of,
    excludes,
    measured_in,
    short_number,
    strength_of,
)
from headscope.report.grids import plain, stacks_of, stacks_with

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

BEST_RELATIONS = 3
MOST_ROLES = 5


Rule = Callable[["Study", str, str], Finding | None]


def _majority(statistic: str, target: str, topic: str) -> Rule:
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
            more, top = max(len(above) - MOST_NAMED, 0), above[0]
            strength = strength_of(top.value, top.low, top.high, 0.5)
            named, is_clear = tuple(above[:MOST_NAMED]), excludes(top, 0.5)
            return Finding(statistic, sentence, named, more, is_clear=is_clear, strength=strength, topic=topic)
        sentence = f"No head{where} gives more than half of its attention to {target}; the most is that of"
        return Finding(statistic, sentence, tuple(rows[:1]), is_clear=excludes(rows[0], 0.5), topic=topic)

    return rule


def _extreme(statistic: str, words: str, topic: str, *, least: bool = False) -> Rule:
    """The head at one end of a statistic, and the one in the middle."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        rows = _ranked(study, statistic, stack)
        if len(rows) < 2:
            return None
        middle = short_number(median(row.value for row in rows))
        named = (rows[-1] if least else rows[0],)
        return Finding(
            statistic, words.format(where=where), named, topic=topic, after=f"; the median head's is {middle}"
        )

    return rule


RULES: tuple[Rule, ...] = (
    _majority("previous", "the previous token", "positions"),
    _majority("next", "the next token", "positions"),
    _majority("cls", "the classification token", "special tokens"),
    _majority("sep", "separators", "special tokens"),
    _extreme("punctuation", 'The most attention to "." and "," among the heads{where} is that of', "punctuation"),
    _extreme("entropy", "The broadest head{where}, by entropy in nats, is head", "breadth"),
    _extreme("entropy", "The narrowest head{where}, by entropy in nats, is head", "breadth", least=True),
    _extreme(
        "confidence-content",
        "The surest head{where}, special tokens left out (mean largest weight), is head",
        "breadth",
    ),
)


def surface(study: Study) -> Iterator[Finding]:
    """Positional heads, sinks, the broadest and the surest head, stack by stack."""
    for stack in stacks_of(study):
        where = "" if len(stacks_of(study)) == 1 else f" of the {plain(stack)} stack"
        for rule in RULES:
            finding = rule(study, stack, where)
            if finding is not None:
                yield finding


def roles(study: Study) -> Iterator[Finding]:
    """How many heads have which role for sure: the whole interval beyond where the role's rule begins."""
    sure = {place: [role for role in of if role.is_sure] for place, of in roles_by_head(study).items()}
    sure = {place: of for place, of in sure.items() if of}
    heads = len(study.heads.drop_duplicates(["stack", "layer", "head"]))
    if "roles" not in study.tables or not heads:
        return
    if not sure:
        yield Finding("", f"No evidence that any of the {heads} heads has a role by the rules", (), kind="roles")
        return
    main = {place: of[0] for place, of in sure.items()}  # one a head: the numbers add up
    counts: dict[str, int] = {}
    for role in main.values():
        counts[role.name] = counts.get(role.name, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    told = [f"{count} {name.replace(': ', ' ')}" for name, count in ranked[:MOST_ROLES]]
    if others := sum(count for _, count in ranked[MOST_ROLES:]):
        told.append(f"{others} with other roles")
    listed = " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]
    place, best = max(main.items(), key=lambda item: item[1].strength)
    row = {"stack": place[0], "layer": place[1], "head": place[2], **vars(best)}
    sentence = (
        f"{len(sure)} of {heads} heads have a role for sure (the whole interval is beyond the rule's threshold), by "
        f"their main role: {listed}; the clearest, {best.name} (threshold {short_number(best.threshold)}), is"
    )
    strength = strength_of(best.value, best.low, best.high, best.threshold)
    yield Finding("", sentence, (measured_in(study, row, "value"),), kind="roles", strength=strength)


def relations(study: Study) -> Iterator[Finding]:
    """The relations with the largest gains over what needs no trained head, of each the best direction."""
    table = study.tables.get("relations")
    if table is None:
        return
    best: dict[str, dict[Any, Any]] = {}
    for row in by_gain(table):
        if row["gain"] > 0 and not str(row["relation"]).startswith("all"):
            best.setdefault(row["relation"], row)
    if not best and len(table):
        told = "No evidence that a head shows a relation better than the best fixed offset does"
        yield Finding("", told, (), kind="relations")
    for row in list(best.values())[:BEST_RELATIONS]:
        sentence = (
            f"Relation {plain(row['relation'], 60)}, {plain(row['direction'], 20)}: the best fixed offset is right in "
            f"{short_number(row['baseline'])} of the pairs; the head chosen on other sentences is"
        )
        found, rival = measured_in(study, row, "accuracy"), float(row["accuracy"]) - float(row["gain"])
        strength = strength_of(found.value, found.low, found.high, rival)
        yield Finding("", sentence, (found,), kind="relations", is_clear=found.low > rival, strength=strength)


def coreference(study: Study) -> Iterator[Finding]:
    table = study.tables.get("coreference")
    if table is None:
        return
    rows = table[(table["kind"] == "all") & (table["candidates"] == "mentions") & table["accuracy"].notna()]
    for row in rows.to_dict("records"):
        sentence = (
            f"Antecedents: the nearest mention with the same head word is right for {short_number(row['head_match'])} "
            "of the mentions; the head chosen on other documents is"
        )
        found, rival = measured_in(study, row, "accuracy"), float(row["head_match"])
        strength = strength_of(found.value, found.low, found.high, rival)
        is_clear = excludes(found, rival)
        yield Finding("antecedent", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength)


def rare_words(study: Study) -> Iterator[Finding]:
    table = study.tables.get("rare_words")
    rows = study.heads[(study.heads["statistic"] == "two-rarest") & study.heads["value"].notna()]
    if table is None or not len(rows) or not (table["kind"] == "two-rarest").any():
        return
    guess = table[table["kind"] == "two-rarest"].nlargest(1, "value").iloc[0]
    sentence = (
        f"One of the two rarest words: the best simple guess ({plain(guess['baseline'], 40)}) is right in "
        f"{short_number(guess['value'])} of the sentences; the head that most often points there is"
    )
    best = rows.sort_values(["value", "stack", "layer", "head"], ascending=[False, True, True, True]).to_dict("records")
    found, rival = measured_in(study, best[0], "value"), float(guess["value"])
    strength = strength_of(found.value, found.low, found.high, rival)
    is_clear = excludes(found, rival)
    yield Finding("two-rarest", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength)


def twins(study: Study) -> Iterator[Finding]:
    """The two heads that attend most alike."""
    table = study.tables.get("clusters")
    if table is None or not table["twin_distance"].notna().any():
        return
    row = table.nsmallest(1, "twin_distance").to_dict("records")[0]
    other = row | {"layer": row["twin_layer"], "head": row["twin_head"]}
    sentence = f"The two heads that attend most alike, {row['twin_distance']:.2g} nats apart, are"
    heads = tuple(Measured(address_of(study, one), math.nan, math.nan, math.nan) for one in (row, other))
    yield Finding("", sentence, heads, topic="twins")


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
