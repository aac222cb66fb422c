"""The question whether a row of attention agrees with a role: where its largest weight should be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
class RowMaxima:
    """The largest weight of each row of some heads. All arrays: [head, row].

    argmax   the key with the largest weight
    largest  this weight; below 0 in rows that no question is about
    entropy  of the row, in nats; None if unknown
    """

    argmax: NDArray[np.int32]
    largest: NDArray[np.float32]
    entropy: NDArray[np.float32] | None = None

    @classmethod
    def of_maps(cls, maps: NDArray[np.float32], allowed: NDArray[np.bool_]) -> RowMaxima:
        """The maxima of maps [head, row, key] among the allowed cells [row, key]; below 0 if a row has none."""
        masked = np.where(allowed, maps, np.float32(-1.0))
        argmax = masked.argmax(axis=-1).astype(np.int32)
        return cls(argmax, np.take_along_axis(masked, argmax[..., None], axis=-1)[..., 0])


@dataclass(frozen=True)
class TokenQuestion:
    """Where the largest weight of a token's row should be.

    right          [query, key]: the right keys; rows without a right key are left out
    among_content  whether the maximum is taken over content keys only
    is_broad       the rule holds if no weight is large
    """

    right: NDArray[np.bool_]
    among_content: bool = False
    is_broad: bool = False


@dataclass(frozen=True)
class WordQuestion:
    """Where the largest weight of a word's row should be.

    right, allowed  [query, key]: the right keys, and those among which the maximum is taken
    by_column       the maximum is over queries, not over keys
    """

    right: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    by_column: bool = False


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

    @cached_property
    def word_numbers(self) -> NDArray[np.int64]:
        """The words that questions are about: the head words of mentions, or all words."""
        if self.window is None:
            return np.arange(len(self.words))
        return np.unique([mention.head for mention in self.window.mentions]).astype(np.int64)

    def cells(self, maps: NDArray[np.float32], stack: str) -> NDArray[np.float32]:
        """[head, query, key]: the cells of maps between words that questions are about."""
        if self.window is not None:
            return maps[:, self.word_numbers[:, None], self.word_numbers]
        queries, keys = self.labels(stack)
        return maps[:, : len(queries), : len(keys)]

    def labels(self, stack: str) -> tuple[list[str], list[str]]:
        """The words of queries and of keys; the same list if it is one text."""
        source, target = (
            [] if text is None or isinstance(text, str) else list(text)
            for text in (self.example.first, self.example.second)
        )
        if stack == "cross":
            return target, source
        words = target if stack == "decoder" and target else source
        return words, words


HeadsByRole = dict[Site, dict[ExampleRole, list[int]]]  # the heads of each site that have a role
Questions = dict[ExampleRole, WordQuestion]


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


def content_rows(query: Tokens, key: Tokens) -> NDArray[np.bool_]:
    """[query, key] of one sequence: True if the query is a content token."""
    is_content = query.content[0].cpu().numpy()
    return np.broadcast_to(is_content[:, None], (len(is_content), key.length))
