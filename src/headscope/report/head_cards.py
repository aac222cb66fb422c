"""What is known of each head beside its statistics: roles with their evidence, twin, substitute, relations, examples.

Everything here is read off a study's tables, each of which may be missing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.analysis.pattern_substitutes import fixed_pattern_effects
from headscope.analysis.roles import RULES, UNDETERMINED
from headscope.report.scale import title_of
from headscope.report.shared_heads import HeadKey
from headscope.report.study_access import entry_of, shape_of, stacks_of
from headscope.report.table_cells import DECIMALS, decimals_for, interval_cell, is_missing, p_text
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

PATTERN = "js-"  # statistics: the divergence from a fixed pattern
BEST_RELATIONS = 3
MOST_EXAMPLE_BYTES = 400_000
ROLES_WITH_EXAMPLES = (12, 6, 3, 1)  # of one head; fewer where the page would grow too heavy


@dataclass(frozen=True)
class Role:
    """One role of a head, with what it was read off."""

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
        """How far the value is from the role's threshold (0) to all there can be (1)."""
        return (
            (self.value - self.threshold) / (1 - self.threshold)
            if self.threshold < 1
            else self.value
        )


def roles_by_head(study: Study) -> dict[HeadKey, list[Role]]:
    """The roles of each head that has one, the main one first.

    What says most about a head comes first: relations, antecedents and rare words, then positions, then kinds of
    tokens, and how broad or sure attention is last; of several alike the strongest. Roles whose interval reaches
    below the threshold come after all others.
    """
    table = study.tables.get("roles")
    evidence = [one.name for one in fields(Role)][1:]
    found: dict[HeadKey, list[Role]] = {}
    for row in [] if table is None else table.to_dict("records"):
        if row["role"] != UNDETERMINED:
            role = Role(role_label(row["role"]), *(row[name] for name in evidence))
            found.setdefault(_place(row), []).append(role)
    return {
        place: sorted(roles, key=lambda one: (not one.is_sure, _vagueness(one.name), -one.strength))
        for place, roles in found.items()
    }


def role_label(role: object) -> str:
    """A role as it is written on the page: a minus sign before an offset."""
    name = plain(role, 60)
    return name.replace("-", "−") if RoleName.parse(name).is_positional else name


def _vagueness(role: str) -> int:
    """0 for a role that annotated data show; relations of one's own have names of their own."""
    kind = RoleName.parse(role).kind
    return next((rule.vagueness for rule in RULES if rule.role == kind), 0)


def is_relation(role: str, study: Study) -> bool:
    """Whether the role is a relation between words, of a treebank or of one's own."""
    table = study.tables.get("relation_heads")
    named = set() if table is None else set(table["relation"].astype(str))
    return RoleName.parse(role).is_syntactic or role in named


def cards_of(study: Study) -> dict[str, Any]:
    """For the page's script: `heads`, by stack and head; `sentences`, which the examples name by number."""
    roles, twins = roles_by_head(study), _twins(study)
    substitutes, relations, importance = (
        _substitutes(study),
        _relations(study),
        importance_lines(study),
    )
    parts: list[dict[HeadKey, Any]] = [roles, twins, substitutes, relations, importance]
    if not any(parts):
        return {"heads": [], "sentences": []}
    sentences, examples = _fitting_examples(study, roles)
    stacks = stacks_of(study)
    numbers = {stack: i for i, stack in enumerate(stacks)}
    heads: list[list[Any]] = [[None] * math.prod(shape_of(study, stack)) for stack in stacks]
    for place in sorted(set().union(*parts)):
        stack, layer, head = place
        if stack not in numbers:
            continue
        heads[numbers[stack]][layer * shape_of(study, stack)[1] + head] = {
            "roles": [_packed(role) for role in roles.get(place, [])],
            "importance": importance.get(place, []),
            "twin": twins.get(place),
            "substitute": substitutes.get(place),
            "relations": relations.get(place, []),
            "examples": examples.get(place, []),
        }
    return {"heads": heads, "sentences": sentences}


def by_gain(relations: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of relations.csv that have a head, the largest gains first: over the best offset, and the control."""
    ranked = relations[relations["accuracy"].notna()]
    rival = (
        ranked[["baseline", "control"]].astype(float).max(axis=1)
    )  # NaN where no control was asked is passed over
    order = (ranked["accuracy"] - rival).sort_values(ascending=False, kind="stable")
    return list(ranked.loc[order.index].assign(gain=order).to_dict("records"))


def _packed(role: Role) -> dict[str, Any]:
    numbers = {
        name: json_number(getattr(role, name)) for name in ("value", "low", "high", "baseline")
    }
    return {"role": role.name, **numbers, "sure": bool(role.is_sure), "rule": plain(role.rule, 200)}


def _twins(study: Study) -> dict[HeadKey, list[Any]]:
    """[layer, head, divergence] of the head of the same stack that is most alike."""
    table = study.tables.get("clusters")
    if table is None:
        return {}
    known = table.dropna(subset=["twin_layer", "twin_head", "twin_distance"])
    return {
        _place(row): [
            int(row["twin_layer"]),
            int(row["twin_head"]),
            json_number(row["twin_distance"]),
        ]
        for row in known.to_dict("records")
    }


def _substitutes(study: Study) -> dict[HeadKey, list[Any]]:
    """[pattern, divergence] of the fixed pattern that is nearest."""
    heads = study.heads
    rows = heads[heads["statistic"].astype(str).isin(_patterns(study)) & heads["value"].notna()]
    nearest = rows.sort_values("value", kind="stable").drop_duplicates(["stack", "layer", "head"])
    return {
        _place(row): [
            plain(title_of(row["statistic"]).removeprefix("Distance from attending to ")),
            json_number(row["value"]),
        ]
        for row in nearest.to_dict("records")
    }


def importance_lines(study: Study) -> dict[HeadKey, list[dict[str, str]]]:
    """What a head's removal changes, and what its fixed pattern in its place does: what, number, and what follows."""
    found: dict[HeadKey, list[dict[str, str]]] = {}
    task, metric = (
        plain(entry_of(study.record, "importance", key) or f"the {key}", 40)
        for key in ("task", "metric")
    )
    table = study.tables.get("significance")
    for statistic, named in ((LOSS, "loss"), (METRIC, metric)):
        rows = (
            None
            if table is None
            else table[(table["statistic"] == statistic) & table["value"].notna()]
        )
        decimals = DECIMALS if rows is None else decimals_for(rows["value"])
        for row in [] if rows is None else rows.to_dict("records"):
            told = {"what": f"change of {named} of {task} without it", "after": _tested(row)}
            text = interval_cell(row["value"], row["low"], row["high"], decimals).text
            found.setdefault(_place(row), []).append(told | {"text": text})
    for row in fixed_pattern_effects(study).to_dict("records"):
        text = interval_cell(row["loss_change"], row["low"], row["high"], 4).text
        pattern, task = plain(row["pattern"], 40), plain(row["task"], 40)
        told = {"what": f"attending by “{pattern}” instead changes the loss of {task} by"}
        found.setdefault(_place(row), []).append(told | {"text": text, "after": ""})
    return found


def _tested(row: dict[Any, Any]) -> str:
    """What follows a change and its interval: both p values, and the verdict of the corrected one."""
    known = {"p": row.get("p"), "p (Holm)": row["p_adjusted"]}
    told = ", ".join(
        f"{name} {p_text(value)}" for name, value in known.items() if not is_missing(value)
    )
    verdict = "★ significant" if row["is_significant"] is True else "not significant"
    return f" (95 %, uncorrected); {told}: {verdict}" if told else ", not tested"


def _patterns(study: Study) -> list[str]:
    from headscope.statistics.fixed_patterns import FixedPatterns

    return list(FixedPatterns.definitions)


def _relations(study: Study) -> dict[HeadKey, list[dict[str, Any]]]:
    """The relations that a head shows best: the largest gains over the best fixed offset, if there are any."""
    table = study.tables.get("relation_heads")
    if table is None or not len(table):
        return {}
    gains = table.assign(gain=table["accuracy"] - table["baseline"])
    gains = gains[gains["gain"] > 0].sort_values("gain", ascending=False, kind="stable")
    best = gains.groupby(["stack", "layer", "head"], sort=False).head(BEST_RELATIONS)
    found: dict[HeadKey, list[dict[str, Any]]] = {}
    for row in best.to_dict("records"):
        numbers = {name: json_number(row[name]) for name in ("accuracy", "low", "high", "baseline")}
        named = {"relation": plain(row["relation"], 60), "direction": plain(row["direction"], 20)}
        found.setdefault(_place(row), []).append(named | numbers | {"above": bool(row["is_above"])})
    return found


def _fitting_examples(
    study: Study, roles: dict[HeadKey, list[Role]]
) -> tuple[list[list[str]], dict[HeadKey, list[Any]]]:
    """Examples of as many roles of each head as the page has room for, the strongest first."""
    table = study.tables.get("examples")
    if table is None:
        return [], {}
    for most in ROLES_WITH_EXAMPLES:
        kept = {(place, role.name) for place, of_head in roles.items() for role in of_head[:most]}
        sentences, examples = _examples(table, kept)
        if len(json.dumps([sentences, list(examples.values())])) <= MOST_EXAMPLE_BYTES:
            return sentences, examples
    return [], {}


def _examples(
    table: pd.DataFrame, kept: set[tuple[HeadKey, str]]
) -> tuple[list[list[str]], dict[HeadKey, list[Any]]]:
    """The different sentences, and for each head [role, kind, direction, sentence, query, key, weight, expected]."""
    numbers: dict[str, int] = {}
    sentences: list[list[str]] = []
    found: dict[HeadKey, list[Any]] = {}
    for row in table.to_dict("records"):
        place, role = _place(row), role_label(row["role"])
        words = words_of(row["words"])
        if (place, role) not in kept or not words:
            continue
        if row["words"] not in numbers:
            numbers[row["words"]] = len(sentences)
            sentences.append(words)
        direction = plain(row["direction"], 20)
        expected = None if is_missing(row["expected"]) else int(row["expected"])
        found.setdefault(place, []).append(
            [
                role,
                plain(row["kind"], 20),
                direction,
                numbers[row["words"]],
                int(row["query"]),
                int(row["key"]),
                json_number(row["weight"]),
                expected,
            ]
        )
    return sentences, found


def words_of(text: object) -> list[str]:
    """The words of an example as they are stored, or none where the text is not such a list."""
    try:
        words = json.loads(str(text))
    except ValueError:
        return []
    return [plain(word, 40) for word in words] if isinstance(words, list) else []


def _place(row: dict[Any, Any]) -> HeadKey:
    return str(row["stack"]), int(row["layer"]), int(row["head"])


def json_number(value: object, digits: int = 4) -> float | None:
    """A number of a few figures; None for NaN and for what is no number, which JSON does not have."""
    number = float(value) if isinstance(value, int | float) else math.nan
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None
