"""The role `coreferential`: the head word of a mention should attend to an antecedent.

An antecedent is the head word of an earlier mention of the same entity. The maximum is taken over the head words of all
earlier mentions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.analysis.examples._question import ExampleRole, Questions, Text, WordQuestion
from headscope.data.coreference import Window
from headscope.heads import Site


def among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    window = text.window
    if window is None:
        return {}
    return {role: _antecedents(window, text) for role in roles if role.name == "coreferential"}


def _antecedents(window: Window, text: Text) -> WordQuestion:
    index = {word: i for i, word in enumerate(text.word_numbers.tolist())}
    right = np.zeros((len(index), len(index)), dtype=bool)
    allowed = np.zeros_like(right)
    for mention in window.mentions:
        for earlier in window.mentions:
            if earlier.end <= mention.start and earlier.head != mention.head:
                cell = index[mention.head], index[earlier.head]
                allowed[cell] = True
                right[cell] |= earlier.entity == mention.entity
    return WordQuestion(right, allowed)
