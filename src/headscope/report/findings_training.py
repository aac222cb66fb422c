"""What a film says of a training: how many heads came to have a role, and when the first of a kind appeared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headscope.report.finding import Finding
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.shared_heads import Place, counted, number_of
from headscope.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

MOST_CHANGES, MOST_FIRSTS = 4, 2  # told in one sentence
CALLED = {"position": "positional", "special tokens": "special-token", "relation": "relational"}


def over_training(study: Study) -> Iterator[Finding]:
    """From the first checkpoint to the last, by families of roles that heads have for sure."""
    table, every = study.tables.get("film_roles"), study.tables.get("film")
    if table is None or every is None or every["step"].nunique() < 2:
        return
    steps = sorted(int(step) for step in every["step"].unique())
    places = list(
        every[["stack", "layer", "head"]].drop_duplicates().itertuples(index=False, name=None)
    )
    held = {step: _heads_by_family(study, table[table["step"] == step]) for step in steps}
    first, last = (set().union(*held[step].values()) for step in (steps[0], steps[-1]))
    sentence = (
        f"From step {steps[0]} to step {steps[-1]} of the training, heads with a role for sure went from "
        f"{number_of(study, first)} to {counted(study, last, places, noun='')}"
    )
    changes = {
        name: tuple(number_of(study, held[step].get(name, ())) for step in (steps[0], steps[-1]))
        for name in FAMILIES
    }
    told = sorted(
        (name for name in FAMILIES if any(changes[name])), key=lambda name: -max(changes[name])
    )
    if told:
        each = (
            f"{CALLED.get(name, name)} {changes[name][0]} to {changes[name][1]}"
            for name in told[:MOST_CHANGES]
        )
        sentence += f" ({', '.join(each)})"
    later = {
        name: next(step for step in steps if held[step].get(name))
        for name in told
        if not changes[name][0]
    }
    if later:
        named = (
            f"{CALLED.get(name, name)} head appeared at step {step}" for name, step in later.items()
        )
        sentence += f"; the first {', the first '.join(list(named)[:MOST_FIRSTS])}"
    yield Finding("", sentence, (), kind="training")


def _heads_by_family(study: Study, roles: pd.DataFrame) -> dict[str, set[Place]]:
    """Which heads have a role of each family for sure, by these rows."""
    relations = {name: table for name, table in study.tables.items() if name == "relations"}
    at_step = Study(study.heads, {}, study.record, {"roles": roles, **relations})
    found: dict[str, set[Place]] = {}
    for place, of_head in roles_by_head(at_step).items():
        for role in of_head:
            if role.is_sure:
                found.setdefault(family_of(role.name, at_step)[0], set()).add(place)
    return found
