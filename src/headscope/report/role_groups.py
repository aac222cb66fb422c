"""Families of roles: what is coloured alike, and what is written in a cell. Known without loading matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.analysis.roles import RULES
from headscope.report.drawing.palette import SERIES
from headscope.report.head_cards import is_relation, role_label
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from headscope.study.study import Study

# Families of roles: colours that differ in lightness too; what is written in a cell says the same without colour.
FAMILIES = {
    "position": SERIES[5],
    "special tokens": SERIES[4],
    "sink": SERIES[3],
    "punctuation": "#f0e442",
    "broad": "#dcc6e0",
    "block": "#b8a77a",
    "confident": "#7f8c8d",
    "relation": SERIES[2],
    "coreference": "#332288",
    "rare words": SERIES[1],
}
SHORT = {rule.role: (rule.family, rule.short) for rule in RULES if rule.short}
LONGEST_BRIEF = 4  # signs in the cells of a telephone
BRIEF = {"broad": "brd", "block": "blk", "coref": "crf"}


def brief_of(text: str) -> str:
    """What stands for a text of a cell where only a few signs have room."""
    return text if len(text) <= LONGEST_BRIEF else BRIEF.get(text, text[:LONGEST_BRIEF])


def family_of(role: str, study: Study) -> tuple[str, str]:
    """The family of a role, and what is written in a cell."""
    if role in SHORT:
        return SHORT[role]
    if RoleName.parse(role).is_positional:
        return "position", RoleName.parse(role_label(role)).detail
    name = RoleName.parse(role).relation
    return (
        ("relation", plain(name, 8)) if is_relation(role, study) else ("confident", plain(name, 8))
    )
