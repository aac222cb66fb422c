"""The question whether a row of attention agrees with a role: where its largest weight should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """A role. relation, direction: name and direction of the relation, for roles of relations."""

    name: str
    relation: str = ""
    direction: str = ""


@dataclass(frozen=True)
class RoleQuestion:
    """Where the largest weight of each row should be, for one role in one text.

    right      [query, key]: the cells at which the maximum should be
    allowed    [query, key]: the cells among which the maximum is taken
    by_column  whether the maximum is taken over queries instead of keys
    is_broad   whether the role instead means that no weight is large
    """

    right: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    by_column: bool = False
    is_broad: bool = False


@dataclass(frozen=True)
class Text:
    """A text with its annotations; those that it does not have are None.

    reader       the stack that reads it: the encoder, or the decoder of a model without an encoder
    sentence     the sentence with its related words
    window       the window of a document with its mentions
    frequencies  word frequencies, if the text may be used for examples of rare words
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


HeadsByRole = dict[Site, dict[ExampleRole, list[int]]]  # the heads of each site that have a role
Questions = dict[ExampleRole, RoleQuestion]


def heads_with_roles(study: Study) -> HeadsByRole:
    """The heads with each role. The role "sink" is left out for heads whose sink is not the first token."""
    table = study.tables.get("relation_heads")
    relations = set() if table is None else set(table["relation"])
    sinks = study.tables.get("sinks")
    elsewhere = set()
    if sinks is not None:
        rows = sinks[sinks["first_share"] <= 0.5].to_dict("records")
        elsewhere = {Head.of_row(row) for row in rows}
    by_site: HeadsByRole = {}
    for row in study.tables["roles"].to_dict("records"):
        head, name = Head.of_row(row), str(row["role"])
        if name == "sink" and head in elsewhere:
            continue
        relation = RoleName.parse(name).relation
        direction = str(row["rule"]).partition(":")[0]  # a relation's rule begins with it
        is_relation = relation in relations and direction in DIRECTIONS
        role = ExampleRole(name, relation, direction) if is_relation else ExampleRole(name)
        heads = by_site.setdefault(head.site, {}).setdefault(role, [])
        if head.head not in heads:
            heads.append(head.head)
    return by_site


def content_rows(query: Tokens, key: Tokens, row: int) -> NDArray[np.bool_]:
    """[query, key]: True if the query is a content token. row: index of the sequence in the batch."""
    is_content = query.content[row].cpu().numpy()
    return np.broadcast_to(is_content[:, None], (len(is_content), key.content.shape[1]))
