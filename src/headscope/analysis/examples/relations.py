"""Roles of relations between words: the largest weight of a word should be on the related word."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.analysis.examples._question import ExampleRole, Questions, Text, WordQuestion
from headscope.data.sentences import Sentence
from headscope.heads import Site


def among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    sentence = text.sentence
    if sentence is None:
        return {}
    stack = {"words": text.reader, "target": "decoder", "across": "cross"}[sentence.between]
    known_roles = [role for role in roles if role.relation and sentence.pairs.get(role.relation)]
    return {role: _relation(sentence, role) for role in known_roles if site.stack == stack}


def _relation(sentence: Sentence, role: ExampleRole) -> WordQuestion:
    source, target = len(sentence.words), len(sentence.target or ())
    shapes = {"words": (source, source), "target": (target, target), "across": (target, source)}
    right = np.zeros(shapes[sentence.between], dtype=bool)
    for query, key in sentence.pairs[role.relation]:
        right[query, key] = True
    if sentence.between == "across":
        return WordQuestion(right, np.ones_like(right), by_column=role.direction == "received")
    np.fill_diagonal(right, False)
    allowed = ~np.eye(len(right), dtype=bool)
    if role.direction != "dependent":  # the weight of a governor's row on its dependent
        right = right.T
    return WordQuestion(right, allowed, by_column=role.direction == "received")
