"""Families of roles: their colours, and the text in a cell of the map. Does not load matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.analysis.roles import RULES
from headscope.report.drawing.palette import SERIES
from headscope.report.head_cards import is_relation, role_label
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from headscope.study.study import Study

# Colours that differ in lightness too; the text in a cell gives the same information without colour.
FAMILIES = {
    "position": SERIES[5],
    "special tokens": SERIES[4],
    "sink": SERIES[3],
    "punctuation": "#f0e442",
    "diffuse": "#b39ddb",
    "block": "#b8a77a",
    "peaked": "#7f8c8d",
    "relation": SERIES[2],
    "coreference": "#332288",
    "rare words": SERIES[1],
}
FAMILY_LABELS = {"broad": "diffuse", "confident": "peaked"}  # of `RoleRule.family`
SHORT_LABELS = {"broad": "diffuse", "conf": "peak"}  # of `RoleRule.short`
SHORT = {
    role_label(rule.role): (
        FAMILY_LABELS.get(rule.family, rule.family),
        SHORT_LABELS.get(rule.short, rule.short),
    )
    for rule in RULES
    if rule.short
}
LONGEST_BRIEF = 4  # characters in the cells on a phone
BRIEF = {"diffuse": "dif", "block": "blk", "coref": "crf"}


def brief_of(text: str) -> str:
    """The text of a cell where only a few characters fit."""
    return text if len(text) <= LONGEST_BRIEF else BRIEF.get(text, text[:LONGEST_BRIEF])


def family_of(role: str, study: Study) -> tuple[str, str]:
    """The family of a role, and the text in a cell."""
    if role in SHORT:
        return SHORT[role]
    if RoleName.parse(role).is_positional:
        return "position", RoleName.parse(role_label(role)).detail
    family = "relation" if is_relation(role, study) else "peaked"
    return family, plain(RoleName.parse(role).relation, 8)


def tendency_family(name: str) -> tuple[str, str]:
    """The family of a tendency, and the text in a cell."""
    return ("sink", "1st") if name == "first token" else SHORT[name]
