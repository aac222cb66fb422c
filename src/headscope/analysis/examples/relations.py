"""A relation between words: the related word is where the largest weight should be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.analysis.examples._question import ExampleRole, Questions, RoleQuestion, Text
from headscope.data.sentences import Sentence
from headscope.heads import Site


def among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    sentence = text.sentence
    if sentence is None:
        return {}
    stack = {"words": text.reader, "target": "decoder", "across": "cross"}[sentence.between]
    shown = [role for role in roles if role.relation and sentence.pairs.get(role.relation)]
    return {role: _related(sentence, role) for role in shown if site.stack == stack}


def _related(sentence: Sentence, role: ExampleRole) -> RoleQuestion:
    source, target = len(sentence.words), len(sentence.target or ())
    shape = {"words": (source, source), "target": (target, target), "across": (target, source)}[
        sentence.between
    ]
    right = np.zeros(shape, dtype=bool)
    for query, key in sentence.pairs[role.relation]:
        right[query, key] = True
    if sentence.between == "across":
        return RoleQuestion(right, np.ones_like(right), by_column=role.direction == "received")
    np.fill_diagonal(right, False)
    allowed = ~np.eye(len(right), dtype=bool)
    # `governor` and `received` both speak of what the governor gives to its dependent.
    return RoleQuestion(
        right if role.direction == "dependent" else right.T, allowed, role.direction == "received"
    )
