"""The role `coreferential`: the head word of a mention should attend to an antecedent.

An antecedent is the head word of an earlier mention of the same entity. The maximum is taken over the head words of all
earlier mentions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.analysis.examples._question import ExampleRole, Questions, RoleQuestion, Text
from headscope.data.coreference import Window
from headscope.heads import Site


def among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    window = text.window
    if window is None:
        return {}
    return {role: _antecedents(window) for role in roles if role.name == "coreferential"}


def _antecedents(window: Window) -> RoleQuestion:
    right = np.zeros((len(window.words), len(window.words)), dtype=bool)
    allowed = np.zeros_like(right)
    for mention in window.mentions:
        for earlier in window.mentions:
            if earlier.end <= mention.start and earlier.head != mention.head:
                allowed[mention.head, earlier.head] = True
                right[mention.head, earlier.head] |= earlier.entity == mention.entity
    return RoleQuestion(right, allowed)
