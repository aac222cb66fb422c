"""What heads attend to, what they do and which relations they show: findings of `headscope analyze`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

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
from headscope.report.head_cards import Role, by_gain, roles_by_head
from headscope.report.over_uniform import uniform_shares
from headscope.report.shared_heads import Place, counted, head_of, is_shared, number_of
from headscope.report.study_access import recorded, stacks_of, stacks_with
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

BEST_RELATIONS = 3
MOST_ROLES = 5


Rule = Callable[["Study", str, str], Finding | None]


def _majority(statistic: str, target: str, topic: str) -> Rule:
    """Heads that give more than half of their attention to one place, or the nearest to it."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        rows = _ranked(study, statistic, stack)
        if not rows or next(iter(rows.values())).value == 0:  # a causal stack cannot look ahead
            return None
        above = {place: row for place, row in rows.items() if row.value > 0.5}
        if above:
            best = _strongest_sites(study, above)
            verb = (
                "gives more than half of its" if len(best) == 1 else "give more than half of their"
            )
            each = ", at its strongest site" if len(best) == 1 else ", each at its strongest site"
            at = each if is_shared(study, stack) else ""
            sentence = f"{counted(study, above, rows)}{where} {verb} attention to {target}{at}:"
            more, top = max(len(best) - MOST_NAMED, 0), best[0]
            strength = strength_of(top.value, top.low, top.high, 0.5)
            named, is_clear = tuple(best[:MOST_NAMED]), excludes(top, 0.5)
            return Finding(
                statistic, sentence, named, more, is_clear=is_clear, strength=strength, topic=topic
            )
        sentence = (
            f"No head{where} gives more than half of its attention to {target}; the most is that of"
        )
        most = next(iter(rows.values()))
        return Finding(statistic, sentence, (most,), is_clear=excludes(most, 0.5), topic=topic)

    return rule


def _extreme(statistic: str, words: str, topic: str, *, least: bool = False) -> Rule:
    """The head at one end of a statistic, and the one in the middle."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        rows = list(_ranked(study, statistic, stack).values())
        if len(rows) < 2:
            return None
        middle = short_number(median(row.value for row in rows))
        named = (rows[-1] if least else rows[0],)
        return Finding(
            statistic,
            words.format(where=where),
            named,
            topic=topic,
            after=f"; the median head's is {middle}",
        )

    return rule


def _strongest_sites(study: Study, rows: dict[Place, Measured]) -> list[Measured]:
    """Each head once, at the site where it is first in this order."""
    found: dict[Place, Measured] = {}
    for place, row in rows.items():
        found.setdefault(head_of(study, place), row)
    return list(found.values())


def _unless_classification(rule: Rule) -> Rule:
    """The rule, for stacks that have no classification token, which would be the first token."""
    return lambda study, stack, where: (
        None if stack in stacks_with(study, "cls") else rule(study, stack, where)
    )


def _of_natural_language(rule: Rule) -> Rule:
    """The rule, unless the vocabulary is known to be of another kind: "." separates molecules in SMILES."""

    def checked(study: Study, stack: str, where: str) -> Finding | None:
        is_other = recorded(study.record, "model", "natural_language") is False
        return None if is_other else rule(study, stack, where)

    return checked


RULES: tuple[Rule, ...] = (
    _majority("previous", "the previous token", "positions"),
    _majority("next", "the next token", "positions"),
    _majority("cls", "the classification token", "special tokens"),
    _majority("sep", "separators", "special tokens"),
    _unless_classification(_majority("first", "the first token", "special tokens")),
    _of_natural_language(
        _extreme(
            "punctuation",
            'The most attention to "." and "," among the heads{where} is that of',
            "punctuation",
        )
    ),
    _extreme("entropy", "The broadest head{where}, by entropy in nats, is head", "breadth"),
    _extreme(
        "entropy", "The narrowest head{where}, by entropy in nats, is head", "breadth", least=True
    ),
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
    every = roles_by_head(study)
    sure = {place: [role for role in of if role.is_sure] for place, of in every.items()}
    sure = {place: of for place, of in sure.items() if of}
    heads = list(
        study.heads[["stack", "layer", "head"]].drop_duplicates().itertuples(index=False, name=None)
    )
    if "roles" not in study.tables or not heads:
        return
    if not sure:
        many = number_of(study, heads)
        yield Finding(
            "",
            f"No evidence that any of the {many} heads has a role by the rules",
            (),
            kind="roles",
        )
        return
    main = {place: of[0] for place, of in sure.items()}  # one a head: the numbers add up
    counts: dict[str, list[Place]] = {}
    for place, role in main.items():
        counts.setdefault(role.name, []).append(place)
    ranked = sorted(counts.items(), key=lambda item: (-number_of(study, item[1]), -len(item[1])))
    told = [
        f"{_many(study, places)} {name.replace(': ', ' ')}{_threshold([main[place] for place in places])}"
        for name, places in ranked[:MOST_ROLES]
    ]
    if others := [place for _, places in ranked[MOST_ROLES:] for place in places]:
        told.append(f"{_many(study, others)} with other roles")
    listed = " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]
    place, best = max(main.items(), key=lambda item: item[1].strength)
    row = {"stack": place[0], "layer": place[1], "head": place[2], **vars(best)}
    at = " at each site" if is_shared(study) else ""
    others_too = (
        f"; {number_of(study, every)} by the value alone, as the map counts"
        if len(every) > len(sure)
        else ""
    )
    sentence = (
        f"{counted(study, sure, heads)} have a role for sure (the whole interval is beyond the rule's threshold"
        f"{others_too}), by their main role{at}: {listed}; the clearest, {best.name}, is"
    )
    strength = strength_of(best.value, best.low, best.high, best.threshold)
    yield Finding(
        "", sentence, (measured_in(study, row, "value"),), kind="roles", strength=strength
    )


def _threshold(roles: list[Role]) -> str:
    """` (above 0.6)`: where the role begins; nothing if that differs from head to head, as for relations."""
    thresholds = {role.threshold for role in roles}
    return f" (above {thresholds.pop():.3g})" if len(thresholds) == 1 else ""


def _many(study: Study, places: list[Place]) -> str:
    """`4`, or `1 (8 sites)` where layers share their heads."""
    if not is_shared(study):
        return str(len(places))
    return f"{number_of(study, places)} ({len(places)} {'site' if len(places) == 1 else 'sites'})"


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
        found, rival = (
            measured_in(study, row, "accuracy"),
            float(row["accuracy"]) - float(row["gain"]),
        )
        strength = strength_of(found.value, found.low, found.high, rival)
        yield Finding(
            "", sentence, (found,), kind="relations", is_clear=found.low > rival, strength=strength
        )


def coreference(study: Study) -> Iterator[Finding]:
    table = study.tables.get("coreference")
    if table is None:
        return
    rows = table[
        (table["kind"] == "all") & (table["candidates"] == "mentions") & table["accuracy"].notna()
    ]
    for row in rows.to_dict("records"):
        sentence = (
            f"Antecedents: the nearest mention with the same head word is right for {short_number(row['head_match'])} "
            "of the mentions; the head chosen on other documents is"
        )
        found, rival = measured_in(study, row, "accuracy"), float(row["head_match"])
        strength = strength_of(found.value, found.low, found.high, rival)
        is_clear = excludes(found, rival)
        yield Finding(
            "antecedent", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength
        )


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
    best = rows.sort_values(
        ["value", "stack", "layer", "head"], ascending=[False, True, True, True]
    ).to_dict("records")
    found, rival = measured_in(study, best[0], "value"), float(guess["value"])
    strength = strength_of(found.value, found.low, found.high, rival)
    is_clear = excludes(found, rival)
    yield Finding(
        "two-rarest", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength
    )


def twins(study: Study) -> Iterator[Finding]:
    """The two heads that attend most alike."""
    table = study.tables.get("clusters")
    if table is None or not table["twin_distance"].notna().any():
        return
    pairs = [
        (row, row | {"layer": row["twin_layer"], "head": row["twin_head"]})
        for row in table[table["twin_distance"].notna()]
        .sort_values("twin_distance", kind="stable")
        .to_dict("records")
    ]
    pairs = [
        pair for pair in pairs if len({head_of(study, _place(one)) for one in pair}) == 2
    ]  # not one shared head
    if not pairs:
        return
    row, other = pairs[0]
    sentence = f"The two heads that attend most alike, {row['twin_distance']:.2g} nats apart, are"
    heads = tuple(
        Measured(address_of(study, one), math.nan, math.nan, math.nan) for one in (row, other)
    )
    yield Finding("", sentence, heads, topic="twins")


def _place(row: dict[Any, Any]) -> Place:
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def _ranked(study: Study, statistic: str, stack: str) -> dict[Place, Measured]:
    """The heads of a stack from the largest value down; ties in order of layer and head."""
    if stack not in stacks_with(study, statistic):
        return {}
    heads = study.heads
    rows = heads[
        (heads["stack"] == stack) & (heads["statistic"] == statistic) & heads["value"].notna()
    ]
    rows = rows.sort_values(["value", "layer", "head"], ascending=[False, True, True])
    uniform = uniform_shares(study, statistic, stack)
    return {
        (stack, row["layer"], row["head"]): measured_in(study, row, "value")._replace(
            uniform=uniform.get(row["layer"], math.nan)
        )
        for row in rows.to_dict("records")
    }
