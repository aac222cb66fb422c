"""The role `rare words`: other words should attend to one of the two rarest words of a text.

Texts without a rare word have no examples.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.analysis.examples._question import ExampleRole, Questions, Text, WordQuestion
from headscope.data.frequency import Frequencies
from headscope.heads import Site

COMMON = 500  # the most frequent words, which are not rare; the statistic uses the same number


def among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    rare = [role for role in roles if role.name == "rare words"]
    if not rare or text.frequencies is None or site.stack != text.reader:
        return {}
    question = _rarest(text.words, text.frequencies)
    return {} if question is None else dict.fromkeys(rare, question)


def _rarest(words: tuple[str, ...], frequencies: Frequencies) -> WordQuestion | None:
    counted = np.array([frequencies.is_counted(word) for word in words], dtype=bool)
    pairs = list(zip(words, counted, strict=True))
    ranks = np.array([frequencies.rank(word) if is_word else -1 for word, is_word in pairs])
    ranked = zip(words, ranks.tolist(), strict=True)
    different = {word.lower(): rank for word, rank in ranked if rank >= 0}
    rarest = sorted(different.values(), reverse=True)
    if not rarest or rarest[0] < COMMON:
        return None
    targets = counted & (ranks >= rarest[min(1, len(rarest) - 1)])
    rows = counted & ~targets
    allowed = counted[None] & ~np.eye(len(words), dtype=bool)
    return WordQuestion(rows[:, None] & targets, rows[:, None] & allowed)
