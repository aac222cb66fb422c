"""The facts on the card of each head: roles with evidence, nearest head, nearest pattern, relations, examples.

They are read from the tables of a study. Each of these tables may be missing.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.analysis.pattern_substitutes import fixed_pattern_effects
from headscope.analysis.roles import RULES, UNDETERMINED
from headscope.report.scale import title_of
from headscope.report.shared_heads import HeadKey, head_key
from headscope.report.study_access import entry_of, records_of, shape_of, stacks_of
from headscope.report.table_cells import decimals_for, interval_cell, is_missing, p_text
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

# Names in roles.csv, and the usual terms for them
ROLE_LABELS = {
    "broad": "diffuse",
    "confident": "peaked",
    "itself": "same token",
    UNDETERMINED: "no clear role",
}
SAME_POSITION = {
    "positional −1": "previous token",
    "positional +1": "next token",
    "positional 0": "same token",
}
# The directions of relations in words; a "head" of syntax is not an attention head.
DIRECTIONS = {
    "dependent": "dependent → syntactic head",
    "governor": "syntactic head → dependent",
    "received": "syntactic head → dependent, compared over all words",
}
BEST_RELATIONS = 3
MOST_EXAMPLE_BYTES = 400_000
ROLES_WITH_EXAMPLES = (12, 6, 3, 1)  # per head; fewer if the page would become too large


@dataclass(frozen=True)
class Role:
    """One role of a head, with the evidence for it."""

    name: str
    value: float
    low: float
    high: float
    baseline: float
    threshold: float
    is_sure: bool
    rule: str
    count: int

    @property
    def strength(self) -> float:
        """The value on a scale from the role's threshold (0) to the largest possible value (1)."""
        if self.threshold >= 1:
            return self.value
        return (self.value - self.threshold) / (1 - self.threshold)


class Cards(TypedDict):
    """The cards of all heads, for the page's script.

    heads      [stack][head]: the card; None for a head without facts
    sentences  the words of each example sentence; examples refer to them by index
    """

    heads: list[list[dict[str, Any] | None]]
    sentences: list[list[str]]


def roles_by_head(study: Study) -> dict[HeadKey, list[Role]]:
    """The roles of each head that has one, the main one first.

    The most informative role comes first: relations, antecedents and rare words, then positions, then kinds of
    tokens; diffuse and peaked heads are last. Among equally informative roles the strongest comes first. Roles whose
    interval extends below the threshold come after all others.
    """
    evidence = [field.name for field in fields(Role)][1:]
    roles: dict[HeadKey, list[Role]] = defaultdict(list)
    for row in records_of(study, "roles"):
        if row["role"] != UNDETERMINED:
            roles[head_key(row)].append(Role(role_label(row["role"]), *(row[e] for e in evidence)))
    for key, of_head in roles.items():
        roles[key] = of_head = _without_repeated_positions(of_head)
        of_head.sort(key=lambda role: (not role.is_sure, _vagueness(role.name), -role.strength))
    return dict(roles)


def role_label(role: object) -> str:
    """A role as it is written on the page: by its usual term, with a minus sign in front of an offset."""
    name = plain(role, 60)
    name = ROLE_LABELS.get(name, name)
    return name.replace("-", "−") if RoleName.parse(name).is_positional else name


def rule_label(rule: str) -> str:
    """A rule of roles.csv as it is written on the page: if it begins with a direction, that is put in words."""
    direction, colon, rest = rule.partition(":")
    return f"{DIRECTIONS.get(direction, direction)}{colon}{rest}"


def _without_repeated_positions(roles: list[Role]) -> list[Role]:
    """The roles without repetitions: "positional −1", for example, repeats the role "previous token"."""
    names = {role.name for role in roles}
    repeated = {label for label, name in SAME_POSITION.items() if name in names}
    return [role for role in roles if role.name not in repeated]


def _vagueness(role: str) -> int:
    """The vagueness of the rule for this role; 0 for relations, whose names can be any that the user chose."""
    kind = RoleName.parse(role).kind
    return next((rule.vagueness for rule in RULES if role_label(rule.role) == kind), 0)


def is_relation(role: str, study: Study) -> bool:
    """Whether the role is a relation between words, of a treebank or defined by the user."""
    table = study.tables.get("relation_heads")
    relations = set() if table is None else set(table["relation"].astype(str))
    return RoleName.parse(role).is_syntactic or role in relations


def cards_of(study: Study) -> Cards:
    """The cards of all heads that occur in one of the tables."""
    roles = roles_by_head(study)
    parts: dict[str, dict[HeadKey, Any]] = {
        "roles": {key: [_role_entry(r) for r in of_head] for key, of_head in roles.items()},
        "importance": importance_lines(study),
        "twin": _twins(study),
        "substitute": _substitutes(study),
        "relations": _relations(study),
    }
    if not any(parts.values()):
        return {"heads": [], "sentences": []}
    places = set().union(*parts.values())
    sentences, parts["examples"] = _fitting_examples(study, roles)
    stacks = stacks_of(study)
    heads: list[list[Any]] = [[None] * math.prod(shape_of(study, stack)) for stack in stacks]
    for key in sorted(places):
        stack, layer, head = key
        if stack in stacks:
            card = {
                name: of_heads.get(key, None if name in ("twin", "substitute") else [])
                for name, of_heads in parts.items()
            }
            heads[stacks.index(stack)][layer * shape_of(study, stack)[1] + head] = card
    return {"heads": heads, "sentences": sentences}


def by_gain(relations: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of relations.csv that have a head, by their gain over the best offset and the control, largest first."""
    ranked = relations[relations["accuracy"].notna()]
    rival = ranked[["baseline", "control"]].astype(float).max(axis=1)  # a missing control is NaN
    order = (ranked["accuracy"] - rival).sort_values(ascending=False, kind="stable")
    return list(ranked.loc[order.index].assign(gain=order).to_dict("records"))


def _role_entry(role: Role) -> dict[str, Any]:
    numbers = {n: json_number(getattr(role, n)) for n in ("value", "low", "high", "baseline")}
    return {
        "role": role.name,
        **numbers,
        "sure": bool(role.is_sure),
        "rule": plain(rule_label(role.rule), 200),
    }


def _twins(study: Study) -> dict[HeadKey, list[Any]]:
    """[layer, head, divergence] of the most similar head of the same stack."""
    twins = {}
    for row in records_of(study, "clusters"):
        layer, head, distance = (row[f"twin_{name}"] for name in ("layer", "head", "distance"))
        if not any(map(is_missing, (layer, head, distance))):
            twins[head_key(row)] = [int(layer), int(head), json_number(distance)]
    return twins


def _substitutes(study: Study) -> dict[HeadKey, list[Any]]:
    """[pattern, divergence] of the nearest fixed pattern."""
    from headscope.statistics.fixed_patterns import FixedPatterns

    heads = study.heads
    is_pattern = heads["statistic"].astype(str).isin(list(FixedPatterns.definitions))
    rows = heads[is_pattern & heads["value"].notna()].sort_values("value", kind="stable")
    nearest = rows.drop_duplicates(["stack", "layer", "head"]).to_dict("records")
    return {
        head_key(row): [
            plain(_pattern_name(title_of(row["statistic"]))),
            json_number(row["value"]),
        ]
        for row in nearest
    }


def _pattern_name(title: str) -> str:
    """`the previous token` from the title "Distance from attention to the previous token"."""
    return title.removeprefix("Distance from ").removeprefix("attention to ")


def importance_lines(study: Study) -> dict[HeadKey, list[dict[str, str]]]:
    """The changes when a head is removed or replaced by its fixed pattern: `what`, `text` (the number) and `after`."""
    lines: dict[HeadKey, list[dict[str, str]]] = defaultdict(list)
    task, metric = (
        plain(entry_of(study.record, "importance", key) or key, 40) for key in ("task", "metric")
    )
    tests = [row for row in records_of(study, "significance") if not is_missing(row["value"])]
    for statistic, quantity in ((LOSS, "loss"), (METRIC, metric)):
        rows = [row for row in tests if row["statistic"] == statistic]
        decimals = decimals_for(row["value"] for row in rows)
        for row in rows:
            text = interval_cell(row["value"], row["low"], row["high"], decimals).text
            what = f"change of the {task} {quantity} when this head is ablated"
            lines[head_key(row)].append({"what": what, "text": text, "after": _verdict(row)})
    for row in fixed_pattern_effects(study).to_dict("records"):
        text = interval_cell(row["loss_change"], row["low"], row["high"], 4).text
        pattern, task = plain(row["pattern"], 40), plain(row["task"], 40)
        what = f"change of the {task} loss with the fixed pattern “{pattern}”"
        lines[head_key(row)].append({"what": what, "text": text, "after": ""})
    return dict(lines)


def _verdict(row: dict[Any, Any]) -> str:
    """Text after a change and its interval: both p values, and whether the corrected one is significant."""
    p_values = {"p": row.get("p"), "p (Holm)": row["p_adjusted"]}
    texts = [f"{name} {p_text(p)}" for name, p in p_values.items() if not is_missing(p)]
    if not texts:
        return ", not tested"
    verdict = "★ significant" if row["is_significant"] is True else "not significant"
    return f" (uncorrected interval); {', '.join(texts)}: {verdict}"


def _relations(study: Study) -> dict[HeadKey, list[dict[str, Any]]]:
    """The relations with the largest gains of a head over the best fixed offset, if there are any gains."""
    table = study.tables.get("relation_heads")
    if table is None:
        return {}
    gains = table.assign(gain=table["accuracy"] - table["baseline"]).query("gain > 0")
    gains = gains.sort_values("gain", ascending=False, kind="stable")
    best = gains.groupby(["stack", "layer", "head"], sort=False).head(BEST_RELATIONS)
    relations: dict[HeadKey, list[dict[str, Any]]] = defaultdict(list)
    for row in best.to_dict("records"):
        names = {"relation": plain(row["relation"], 60), "direction": plain(row["direction"], 20)}
        numbers = {n: json_number(row[n]) for n in ("accuracy", "low", "high", "baseline")}
        relations[head_key(row)].append({**names, **numbers, "above": bool(row["is_above"])})
    return relations


def _fitting_examples(
    study: Study, roles: dict[HeadKey, list[Role]]
) -> tuple[list[list[str]], dict[HeadKey, list[Any]]]:
    """Examples of as many roles of each head as fit on the page, the strongest first."""
    rows = records_of(study, "examples")
    for most in ROLES_WITH_EXAMPLES:
        shown = {(key, role.name) for key, of_head in roles.items() for role in of_head[:most]}
        sentences, examples = _examples(rows, shown)
        if len(json.dumps([sentences, list(examples.values())])) <= MOST_EXAMPLE_BYTES:
            return sentences, examples
    return [], {}


def _examples(
    rows: list[dict[Any, Any]], shown: set[tuple[HeadKey, str]]
) -> tuple[list[list[str]], dict[HeadKey, list[Any]]]:
    """The distinct sentences, and for each head [role, kind, direction, sentence, query, key, weight, expected]."""
    numbers: dict[str, int] = {}
    sentences: list[list[str]] = []
    examples: dict[HeadKey, list[Any]] = defaultdict(list)
    for row in rows:
        key, role = head_key(row), role_label(row["role"])
        words = words_of(row["words"])
        if (key, role) not in shown or not words:
            continue
        if row["words"] not in numbers:
            numbers[row["words"]] = len(sentences)
            sentences.append(words)
        kind, direction = plain(row["kind"], 20), plain(row["direction"], 20)
        expected = None if is_missing(row["expected"]) else int(row["expected"])
        tokens = numbers[row["words"]], int(row["query"]), int(row["key"])
        examples[key].append([role, kind, direction, *tokens, json_number(row["weight"]), expected])
    return sentences, examples


def words_of(text: object) -> list[str]:
    """The words of a stored example; none if the text is not a JSON list."""
    try:
        words = json.loads(str(text))
    except ValueError:
        return []
    return [plain(word, 40) for word in words] if isinstance(words, list) else []


def json_number(value: object, digits: int = 4) -> float | None:
    """The number with this many significant digits; None for NaN, which JSON does not have, and for other types."""
    number = float(value) if isinstance(value, int | float) else math.nan
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None
