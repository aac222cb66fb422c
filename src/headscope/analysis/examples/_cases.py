"""What is kept: the clearest cases of each head and role, and the words they are shown with."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.examples._question import ExampleRole, RoleQuestion
from headscope.data.examples import Example
from headscope.heads import Head
from headscope.tables import TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

EACH = 3
MOST_WORDS = 30  # that are shown of a text
REACH = 8  # words shown around the two in question, where a text is longer than that
# Where the rule wants the maximum; with more of them no one can be called the right one
FEW_PLACES = 3
LONGEST_TEXT = 4000  # characters of a text that is kept whole
BETWEEN = "‖"  # stands between two texts of a cross attention


@dataclass(order=True)
class ExampleCase:
    """One row of attention and where its maximum is; the larger the rank, the clearer."""

    rank: float
    earlier: int  # of equally clear ones the earlier example is kept
    query: int = field(compare=False)
    key: int = field(compare=False)
    weight: float = field(compare=False)
    expected: int | None = field(compare=False)
    arcs: list[tuple[int, int, float]] = field(compare=False)
    labels: tuple[list[str], list[str]] = field(compare=False)
    example: Example = field(compare=False)
    # The word expected is then one that looks
    is_mirrored: bool = field(compare=False, default=False)

    def mirrored(self) -> ExampleCase:
        """The same with the two sides exchanged: what was found along a column, as a row looks."""
        arcs = [(key, query, weight) for query, key, weight in self.arcs]
        return replace(self, query=self.key, key=self.query, arcs=arcs, is_mirrored=True)


class Found:
    """The clearest cases of each head, role and kind, one an example."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Head, ExampleRole, str], list[ExampleCase]] = {}

    def look(
        self,
        head: Head,
        role: ExampleRole,
        question: RoleQuestion,
        weights: NDArray[np.float32],
        labels: tuple[list[str], list[str]],
        number: int,
        example: Example,
    ) -> None:
        """weights [query, key] of one example, which is the one of this number."""
        right, allowed = question.right, question.allowed
        if question.by_column:
            weights, right, allowed = weights.T, right.T, allowed.T
        rows: NDArray[np.bool_] = np.any(right, axis=1)
        if not rows.any():
            return
        masked = np.where(allowed, weights, -1.0)
        tops = masked.argmax(axis=1)
        largest = masked[np.arange(len(tops)), tops]
        holds = right[np.arange(len(tops)), tops]
        for kind, ranks in _ranks(question, rows, holds, largest, weights):
            best = int(ranks.argmax())
            if not math.isfinite(ranks[best]):
                continue
            is_one_place = not holds[best] and right[best].sum() <= FEW_PLACES
            wanted = (
                int(np.where(right[best], weights[best], -1.0).argmax()) if is_one_place else None
            )
            arcs = [
                (i, int(tops[i]), float(largest[i])) for i in range(len(tops)) if largest[i] > 0
            ]
            place, weight = (best, int(tops[best])), float(largest[best])
            case = ExampleCase(
                float(ranks[best]), -number, *place, weight, wanted, arcs, labels, example
            )
            cases = self._cases.setdefault((head, role, kind), [])
            heapq.heappush(cases, case.mirrored() if question.by_column else case)
            if len(cases) > EACH:
                heapq.heappop(cases)

    def rows(self) -> Iterator[TableRow]:
        def order(key: tuple[Head, ExampleRole, str]) -> tuple[object, ...]:
            head, role, kind = key
            return head, role.name, role.direction, kind == "counter"

        for head, role, kind in sorted(self._cases, key=order):
            key = {"role": role.name, "direction": role.direction, "kind": kind}
            for case in sorted(self._cases[head, role, kind], reverse=True):
                yield {**asdict(head), **key, **_shown(case)}


def _ranks(
    question: RoleQuestion,
    rows: NDArray[np.bool_],
    holds: NDArray[np.bool_],
    largest: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> list[tuple[str, NDArray[np.float64]]]:
    """How clear each row is as a typical and as a counter example; -inf where it is none."""
    if question.is_broad:
        entropy = -(weights * np.log(np.maximum(weights, np.finfo(np.float32).tiny))).sum(axis=1)
        return [
            ("typical", np.where(rows, entropy, -np.inf)),
            ("counter", np.where(rows, largest, -np.inf)),
        ]
    return [
        ("typical", np.where(rows & holds, largest, -np.inf)),
        ("counter", np.where(rows & ~holds & (largest > 0), largest, -np.inf)),
    ]


def _shown(case: ExampleCase) -> TableRow:
    """The words around the two in question, with their new numbers; two texts one behind the other."""
    queries, keys = case.labels
    shift = 0 if queries is keys else len(queries) + 1
    words = queries if queries is keys else [*queries, BETWEEN, *keys]
    query, key = case.query, case.key + shift
    expected = None if case.expected is None else case.expected + (0 if case.is_mirrored else shift)
    kept = stretch(len(words), [place for place in (query, key, expected) if place is not None])
    new = {old: i for i, old in enumerate(kept) if old >= 0}
    arcs = [(new.get(q), new.get(k + shift), round(w, 3)) for q, k, w in case.arcs]
    # The text, or both of a pair; empty if that is too long.
    both = (text for text in (case.example.first, case.example.second) if text)
    texts = [text if isinstance(text, str) else " ".join(text) for text in both]
    is_short = sum(map(len, texts)) <= LONGEST_TEXT
    return {
        "words": json.dumps([words[i] if i >= 0 else "…" for i in kept], ensure_ascii=False),
        "query": new[query],
        "key": new[key],
        "weight": case.weight,
        "expected": None if expected is None else new[expected],
        "arcs": json.dumps([arc for arc in arcs if None not in arc]),
        "text": json.dumps(texts, ensure_ascii=False) if is_short else "",
        "starts": json.dumps(
            [n for n, before in zip(kept, [-1, *kept], strict=False) if n >= 0 > before]
        ),
    }


def stretch(count: int, places: list[int]) -> list[int]:
    """The numbers of the words to show; -1 stands for some that are left out."""
    if count <= MOST_WORDS + 2:  # special tokens at both ends
        return list(range(count))
    near = [i for i in range(count) if any(abs(i - place) <= REACH for place in places)]
    shown: list[int] = [-1] if near[0] > 0 else []
    for before, i in zip([near[0] - 1, *near], near, strict=False):
        shown += [-1, i] if i > before + 1 else [i]
    return [*shown, -1] if near[-1] < count - 1 else shown
