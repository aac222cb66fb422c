"""What is asked of which heads: the roles of a study, and where a row's largest weight should then be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.data.coreference import Window
from headscope.data.examples import Example
from headscope.data.frequency import Frequencies
from headscope.data.sentences import Sentence
from headscope.heads import Head, Site
from headscope.model.tokens import Tokens
from headscope.statistics.relations import DIRECTIONS
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headscope.study.study import Study


@dataclass(frozen=True)
class ExampleRole:
    """A role of some heads; a relation has a name and a direction."""

    name: str
    relation: str = ""
    direction: str = ""


@dataclass(frozen=True)
class RoleQuestion:
    """right, allowed [query, key]: where the rule wants the maximum, and among what it is taken.

    by_column  the maximum is over the words that look, not over those looked at
    is_broad   the rule holds where no weight is large
    """

    right: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    by_column: bool = False
    is_broad: bool = False


@dataclass(frozen=True)
class Text:
    """A text whose words are looked at, and what is known of it; None where it is not.

    reader       the stack that reads it: encoder, or the decoder of a model without one
    sentence     its related words
    window       its mentions
    frequencies  how common words are, where its own may be asked about
    """

    example: Example
    reader: str
    sentence: Sentence | None = None
    window: Window | None = None
    frequencies: Frequencies | None = None

    @property
    def words(self) -> tuple[str, ...]:
        assert not isinstance(self.example.first, str)
        return self.example.first


Asked = dict[Site, dict[ExampleRole, list[int]]]  # the heads of each site that have a role
Questions = dict[ExampleRole, RoleQuestion]


def asked_of(study: Study) -> Asked:
    asked: Asked = {}
    for role, head in _roles(study):
        heads = asked.setdefault(head.site, {}).setdefault(role, [])
        if head.head not in heads:
            heads.append(head.head)
    return asked


def _roles(study: Study) -> Iterator[tuple[ExampleRole, Head]]:
    table = study.tables.get("relation_heads")
    known = set() if table is None else set(table["relation"])
    sinks = study.tables.get("sinks")
    elsewhere = set()
    if sinks is not None:
        rows = sinks[sinks["first_share"] <= 0.5].to_dict("records")
        elsewhere = {_address(row) for row in rows}
    for one in study.tables["roles"].to_dict("records"):
        head = _address(one)
        if one["role"] == "sink" and head in elsewhere:
            continue
        relation = RoleName.parse(str(one["role"])).relation
        direction = str(one["rule"]).partition(":")[0]  # a relation's rule begins with it
        is_relation = relation in known and direction in DIRECTIONS
        related = (relation, direction) if is_relation else ()
        yield ExampleRole(str(one["role"]), *related), head


def _address(row: dict[Any, Any]) -> Head:
    return Head(str(row["stack"]), int(row["layer"]), int(row["head"]))


def content_rows(query: Tokens, key: Tokens, row: int) -> NDArray[np.bool_]:
    """[query, key] of the sequence `row`: everything that content tokens can look at."""
    looking = query.content[row].cpu().numpy()
    return np.broadcast_to(looking[:, None], (len(looking), key.content.shape[1]))
