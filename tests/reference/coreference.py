"""The slow, obvious twin of the coreference statistic: loops over the library's own attentions, from the definition.

Nothing here is shared with `headscope.statistics.coreference`. A text is a list of words and of mentions
(start, end, entity, head word, kind); its attention is a list of rows of weights between tokens, with the word that
each token is a piece of, None for special ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MentionTuple = tuple[int, int, str, int, str]


@dataclass(frozen=True)
class Question:
    """A mention with an antecedent: its head word, its candidates' and its antecedents' head words."""

    kind: str
    head: int
    candidates: dict[str, list[int]]
    antecedents: set[int]
    nearest: bool
    head_match: bool

    def chance(self, among: str) -> float:
        return len(self.antecedents) / len(self.candidates[among])


def questions(words: list[str], mentions: list[MentionTuple]) -> Iterator[Question]:
    for start, end, entity, head, kind in mentions:
        earlier, antecedents = [], set()
        for other_start, other_end, other_entity, other_head, _ in mentions:
            overlaps = other_start < end and start < other_end
            if overlaps or other_start > start:
                continue
            earlier.append(other_head)
            if other_entity == entity:
                antecedents.add(other_head)
        if not antecedents:
            continue
        nearest = None
        same = None
        for i in range(len(words)):  # the last one found is the nearest
            if i in earlier:
                nearest = i
                if words[i].lower() == words[head].lower():
                    same = i
        yield Question(
            kind,
            head,
            {
                "mentions": [i for i in range(len(words)) if i in earlier],
                "words": [i for i in range(len(words)) if i != head],
            },
            antecedents,
            nearest in antecedents,
            same in antecedents,
        )


def between_words(rows: list[list[float]], words: list[int | None], query: int, key: int) -> float:
    """Summed over the pieces of the key word, averaged over those of the query word."""
    total, count = 0.0, 0
    for row, word in zip(rows, words, strict=True):
        if word == query:
            count += 1
            for weight, other in zip(row, words, strict=True):
                if other == key:
                    total += weight
    return total / count


def credit(
    question: Question, among: str, rows: list[list[float]], words: list[int | None]
) -> float:
    """1 if the largest weight is on an antecedent's head word; shared among equals (to 1e-12: sums differ by order)."""
    weights = {
        key: between_words(rows, words, question.head, key) for key in question.candidates[among]
    }
    largest = max(weights.values())
    winners = [key for key, weight in weights.items() if largest - weight <= 1e-12 * largest]
    return sum(key in question.antecedents for key in winners) / len(winners)
