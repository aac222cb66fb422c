"""The slow, obvious twin of the rare-word statistic: loops over one sentence's token weights, from the definition.

Nothing here is shared with `headscope.statistics`, nor with `headscope.data.frequency`: a plain dictionary says how
frequent each word is, and a set which are no words to be called rare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """Words; the word that each token is a piece of (None: special); how frequent each word is; which do not count."""

    words: list[str]
    word_of: list[int | None]
    frequency: dict[str, float]
    not_counted: set[str]
    common: int

    def counted(self) -> list[int]:
        return [i for i, word in enumerate(self.words) if word not in self.not_counted]

    def frequency_of(self, i: int) -> float:
        return self.frequency.get(self.words[i].lower(), -math.inf)

    def targets(self, different: int) -> list[int] | None:
        """The rarest word, or the words among the two rarest; None if the sentence is not asked."""
        by_word = {self.words[i].lower(): self.frequency_of(i) for i in self.counted()}
        if len(by_word) < different:
            return None
        rarest = sorted(by_word.values())
        more_frequent = sum(1 for frequency in self.frequency.values() if frequency > rarest[0])
        if more_frequent < self.common:
            return None
        actual = [i for i in self.counted() if self.frequency_of(i) <= rarest[different - 1]]
        return actual if len(actual) < len(self.counted()) else None


def between_words(rows: list[list[float]], sentence: Sentence) -> list[list[float]]:
    """[query word][key word]: summed over the key's pieces, averaged over the query's."""
    count = len(sentence.words)
    result = [[0.0] * count for _ in range(count)]
    for query in range(count):
        pieces = [i for i, word in enumerate(sentence.word_of) if word == query]
        for i in pieces:
            for weight, key in zip(rows[i], sentence.word_of, strict=True):
                if key is not None:
                    result[query][key] += weight / len(pieces)
    return result


def pointed_at(row: list[float], among: list[int]) -> list[int]:
    """Where the row's largest weight is; several if tied to within a millionth."""
    top = max(row[j] for j in among)
    return [j for j in among if top > 0 and row[j] >= top * (1 - 1e-6)]


def words_pointed_at(row: list[float], sentence: Sentence) -> set[str]:
    """The different words among `pointed_at`."""
    return {sentence.words[j].lower() for j in pointed_at(row, sentence.counted())}


def by_sentence(rows: list[list[float]], sentence: Sentence, different: int) -> float | None:
    targets = sentence.targets(different)
    if targets is None:
        return None
    words = between_words(rows, sentence)
    votes = {sentence.words[i].lower(): 0.0 for i in sentence.counted()}
    for i in sentence.counted():
        winners, own = words_pointed_at(words[i], sentence), sentence.words[i].lower()
        for word in winners - {own}:
            votes[word] += 1 / len(winners) / [one.lower() for one in sentence.words].count(own)
    most = max(votes.values())
    if most == 0:
        return 0.0
    answers = {word for word, count in votes.items() if count > most - 1e-4}
    return len(answers & {sentence.words[j].lower() for j in targets}) / len(answers)


def by_row(rows: list[list[float]], sentence: Sentence, different: int) -> float | None:
    targets = sentence.targets(different)
    if targets is None:
        return None
    words = between_words(rows, sentence)
    shares = []
    for i in sentence.counted():
        if i not in targets:
            winners = words_pointed_at(words[i], sentence)
            rare = {sentence.words[j].lower() for j in targets}
            shares.append(len(winners & rare) / len(winners) if winners else 0.0)
    return sum(shares) / len(shares)


def answers(rows: list[list[float]], sentence: Sentence) -> dict[str, float | None]:
    return {
        "rarest": by_sentence(rows, sentence, 1),
        "two-rarest": by_sentence(rows, sentence, 2),
        "rarest-rows": by_row(rows, sentence, 1),
        "two-rarest-rows": by_row(rows, sentence, 2),
    }


def baselines(sentence: Sentence, different: int) -> dict[str, float] | None:
    """How often a guess without attention is right."""
    targets = sentence.targets(different)
    if targets is None:
        return None
    counted = sentence.counted()
    different = {sentence.words[i].lower() for i in counted}
    rare = {sentence.words[i].lower() for i in targets}
    longest = {word for word in different if len(word) == max(map(len, different))}
    content = [
        i
        for i in counted
        if sum(1 for other in sentence.frequency.values() if other > sentence.frequency_of(i))
        >= sentence.common
    ]
    return {
        "chance": len(rare) / len(different),
        "longest word": len(longest & rare) / len(longest),
        "last content word": float(content[-1] in targets),
    }
