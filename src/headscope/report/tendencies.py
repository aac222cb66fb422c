"""The tendency of heads without a role: the target of attention whose role such a head comes closest to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.config.thresholds import DEFAULTS
from headscope.report.head_cards import roles_by_head
from headscope.report.shared_heads import HeadKey, head_key
from headscope.report.study_access import entry_of, stacks_with, threshold_of, values_for

if TYPE_CHECKING:
    from headscope.study.study import Study

LEAST = 0.5  # of a threshold: below this a head has no tendency
# Statistic, role, name of its threshold. Left out are roles that other roles imply (special tokens, sink, peaked).
TARGETS = (
    ("previous", "previous token", "neighbour"),
    ("next", "next token", "neighbour"),
    ("self", "same token", "neighbour"),
    ("cls", "classification token", "token"),
    ("sep", "separators", "token"),
    ("first", "first token", "token"),
    ("punctuation", "punctuation", "token"),
)
DIFFUSE = (("entropy-share", "diffuse", "broad"),)
RULE = (
    "A paler cell is a head without a role and shows its tendency. This is the token class or position whose share of "
    "attention is nearest to the threshold of a role, and at least half of it. Without such a share, a head tends to "
    "be diffuse if its entropy is at least half of the threshold of that role."
)


@dataclass(frozen=True)
class Tendency:
    """A role that a head tends to: the value of its statistic, and its threshold."""

    name: str
    statistic: str
    value: float
    threshold: float

    @property
    def closeness(self) -> float:
        """The value as a share of the threshold."""
        return self.value / self.threshold if self.threshold > 0 else 0.0


def tendencies(study: Study) -> dict[HeadKey, Tendency]:
    """The tendency of each head that has no role but comes near one; empty if roles were not determined."""
    if "roles" not in study.tables:
        return {}
    with_role = set(roles_by_head(study))
    nearest = {**_nearest(study, DIFFUSE), **_nearest(study, TARGETS)}  # a target before diffuse
    return {key: tendency for key, tendency in nearest.items() if key not in with_role}


def _nearest(study: Study, candidates: tuple[tuple[str, str, str], ...]) -> dict[HeadKey, Tendency]:
    """For each head the candidate whose threshold it comes closest to, if it comes near one."""
    nearest: dict[HeadKey, Tendency] = {}
    for statistic, name, threshold_name in candidates:
        threshold = threshold_of(study, threshold_name, DEFAULTS[threshold_name])
        for row in values_for(study, statistic).to_dict("records"):
            key = head_key(row)
            tendency = Tendency(name, statistic, float(row["value"]), threshold)
            least = nearest[key].closeness if key in nearest else 0.0
            is_near = tendency.closeness >= LEAST and tendency.closeness > least
            if is_near and _applies(study, statistic, key[0]):
                nearest[key] = tendency
    return nearest


def _applies(study: Study, statistic: str, stack: str) -> bool:
    """Not for a first token that is the classification token, nor for "." if it is not punctuation, as in SMILES."""
    if statistic == "punctuation":
        return entry_of(study.record, "model", "natural_language") is not False
    return statistic != "first" or stack not in stacks_with(study, "cls")
