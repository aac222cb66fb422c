"""The clearest examples of each head and role, and the words that are shown with them."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.examples._question import (
    ExampleRole,
    RowMaxima,
    TokenQuestion,
    WordQuestion,
)
from headscope.data.examples import Example
from headscope.heads import Head
from headscope.tables import TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

EACH = 3  # examples of each kind per head and role
MOST_WORDS = 30  # longer texts are not shown completely
REACH = 8  # number of words shown on each side of query and key in a longer text
# A counter example shows an expected position if there are at most this number of right ones.
FEW_PLACES = 3
LONGEST_TEXT = 4000  # longer texts (in characters) are not stored
BETWEEN = "‖"  # separates the two texts of a cross attention


@dataclass(order=True)
class ExampleCase:
    """One row of attention and its maximum.

    rank         how clear it is as an example: larger is clearer
    earlier      minus the number of the example, so that the first one is kept if ranks are equal
    expected     a key at which the maximum should be, in a counter example; None if there are many or none
    arcs         (query, key, weight) of the largest weight of every row of the text
    is_mirrored  whether query and key are exchanged; then `expected` is a query
    """

    rank: float
    earlier: int
    query: int = field(compare=False)
    key: int = field(compare=False)
    weight: float = field(compare=False)
    expected: int | None = field(compare=False)
    arcs: list[tuple[int, int, float]] = field(compare=False)
    text: NumberedExample = field(compare=False)
    is_mirrored: bool = field(compare=False, default=False)

    def mirror(self) -> ExampleCase:
        """The case with query and key exchanged, for a maximum over queries (`WordQuestion.by_column`)."""
        arcs = [(key, query, weight) for query, key, weight in self.arcs]
        return replace(self, query=self.key, key=self.query, arcs=arcs, is_mirrored=True)


@dataclass(frozen=True)
class NumberedExample:
    """An example with its number.

    labels     returns the words or tokens of the queries, and of the keys; the same list object if they are of one text
    positions  indices in these lists of the rows and columns of the map; None if the map has all of them
    """

    number: int
    example: Example
    labels: Callable[[], tuple[list[str], list[str]]]
    positions: NDArray[np.int64] | None = None


class ClearestCases:
    """The EACH clearest cases of each head, role and kind (typical or counter), at most one per text."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Head, ExampleRole, str], list[ExampleCase]] = {}

    def add_words(
        self,
        heads: Mapping[int, Head],
        role: ExampleRole,
        question: WordQuestion,
        maps: NDArray[np.float32],
        text: NumberedExample,
    ) -> None:
        """Add the clearest row of each kind of one text. heads: by their index in maps [head, query, key]."""
        right, allowed = question.right, question.allowed
        if question.by_column:
            maps, right, allowed = maps.transpose(0, 2, 1), right.T, allowed.T
        maxima = RowMaxima.of_maps(maps[list(heads)], allowed)
        self._add(list(heads.values()), role, right, maxima, text, question.by_column)

    def add_tokens(
        self,
        heads: Mapping[int, Head],
        role: ExampleRole,
        question: TokenQuestion,
        maxima: RowMaxima,
        text: NumberedExample,
    ) -> None:
        """Add the clearest row of each kind of one text. heads: by their index in the maxima."""
        index = list(heads)
        entropy = (
            maxima.entropy[index] if question.is_broad and maxima.entropy is not None else None
        )
        of_heads = RowMaxima(maxima.argmax[index], maxima.largest[index], entropy)
        self._add(list(heads.values()), role, question.right, of_heads, text)

    def _add(
        self,
        heads: list[Head],
        role: ExampleRole,
        right: NDArray[np.bool_],
        maxima: RowMaxima,
        text: NumberedExample,
        is_mirrored: bool = False,
    ) -> None:
        """Add the clearest row of each kind of one text. right: [row, key]; maxima: of these heads."""
        rows: NDArray[np.bool_] = np.any(right, axis=1)
        if not rows.any():
            return
        holds = np.take_along_axis(right[None], maxima.argmax[..., None], axis=-1)[..., 0]
        for kind, ranks in _ranks(maxima, rows, holds):
            for i, best in enumerate(ranks.argmax(axis=1).tolist()):
                rank = float(ranks[i, best])
                cases = self._cases.setdefault((heads[i], role, kind), [])
                if not math.isfinite(rank) or (
                    len(cases) == EACH and (rank, -text.number) < (cases[0].rank, cases[0].earlier)
                ):
                    continue
                case = _case(rank, best, right[best], maxima, i, text)
                heapq.heappush(cases, case.mirror() if is_mirrored else case)
                if len(cases) > EACH:
                    heapq.heappop(cases)

    def rows(self) -> Iterator[TableRow]:
        def order(key: tuple[Head, ExampleRole, str]) -> tuple[object, ...]:
            head, role, kind = key
            return head, role.name, role.direction, kind == "counter"

        for head, role, kind in sorted(self._cases, key=order):
            key = {"role": role.name, "direction": role.direction, "kind": kind}
            for case in sorted(self._cases[head, role, kind], reverse=True):
                yield {**asdict(head), **key, **_columns(case)}


def _ranks(
    maxima: RowMaxima, rows: NDArray[np.bool_], holds: NDArray[np.bool_]
) -> list[tuple[str, NDArray[np.float64]]]:
    """(kind, [head, row]): how clear each row is as a typical and as a counter example; -inf if it is not one.

    If `maxima` has an entropy, the role is that no weight is large. Every row is then an example of both kinds: rows
    with the largest entropy are typical, and those with the largest weight are counter examples.

    rows   [row]: rows for which the question has an answer
    holds  [head, row]: whether the maximum is at a right position
    """
    largest = maxima.largest
    if maxima.entropy is None:
        typical, is_typical, is_counter = largest, holds, ~holds & (largest > 0)
    else:
        typical, is_typical = maxima.entropy, np.ones_like(holds)
        is_counter = is_typical
    return [
        ("typical", np.where(rows & is_typical, typical, -np.inf)),
        ("counter", np.where(rows & is_counter, largest, -np.inf)),
    ]


def _case(
    rank: float,
    row: int,
    right: NDArray[np.bool_],
    maxima: RowMaxima,
    head: int,
    text: NumberedExample,
) -> ExampleCase:
    """The example of one row of the head with this index. right [key]: whether the key is a right answer"""
    argmax, largest = maxima.argmax[head], maxima.largest[head]
    key, expected = int(argmax[row]), None
    if not right[key] and right.sum() <= FEW_PLACES:  # the nearest right key
        expected = min(np.flatnonzero(right).tolist(), key=lambda i: abs(i - row))
    position = (lambda i: i) if text.positions is None else text.positions.tolist().__getitem__
    return ExampleCase(
        rank=rank,
        earlier=-text.number,
        query=position(row),
        key=position(key),
        weight=float(largest[row]),
        expected=None if expected is None else position(expected),
        arcs=[
            (position(i), position(int(argmax[i])), float(weight))
            for i, weight in enumerate(largest)
            if weight > 0
        ],
        text=text,
    )


def _columns(case: ExampleCase) -> TableRow:
    """Columns of examples.csv: the words that are shown, and positions among these words. Two texts are joined."""
    queries, keys = case.text.labels()
    shift = 0 if queries is keys else len(queries) + 1
    words = queries if queries is keys else [*queries, BETWEEN, *keys]
    query, key = case.query, case.key + shift
    expected = None if case.expected is None else case.expected + (0 if case.is_mirrored else shift)
    shown = stretch(len(words), [i for i in (query, key, expected) if i is not None])
    new = {old: i for i, old in enumerate(shown) if old >= 0}
    arcs = [(new.get(q), new.get(k + shift), round(w, 3)) for q, k, w in case.arcs]
    pair = (text for text in (case.text.example.first, case.text.example.second) if text)
    texts = [text if isinstance(text, str) else " ".join(text) for text in pair]
    is_short = sum(map(len, texts)) <= LONGEST_TEXT
    starts = [n for n, before in zip(shown, [-1, *shown], strict=False) if n >= 0 > before]
    return {
        "words": json.dumps([words[i] if i >= 0 else "…" for i in shown], ensure_ascii=False),
        "query": new[query],
        "key": new[key],
        "weight": case.weight,
        "expected": None if expected is None else new[expected],
        "arcs": json.dumps([arc for arc in arcs if None not in arc]),
        "text": json.dumps(texts, ensure_ascii=False) if is_short else "",
        "starts": json.dumps(starts),
    }


def stretch(count: int, places: list[int]) -> list[int]:
    """Indices of the words to show: all in a short text, else those near `places`. -1 stands for omitted words."""
    if count <= MOST_WORDS + 2:  # 2 for special tokens at both ends
        return list(range(count))
    near = [i for i in range(count) if any(abs(i - place) <= REACH for place in places)]
    shown: list[int] = [-1] if near[0] > 0 else []
    for before, i in zip([near[0] - 1, *near], near, strict=False):
        shown += [-1, i] if i > before + 1 else [i]
    return [*shown, -1] if near[-1] < count - 1 else shown
