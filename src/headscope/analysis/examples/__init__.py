"""Examples and counter examples of roles in texts.

For every head with a role, three typical and three counter examples are taken from the first texts of each kind of
data. An example is one row of attention with the position of its largest weight. It is typical if this position agrees
with the role, else it is a counter example. Of each kind, the examples with the largest weights are kept, at most one
per text.

Roles of tokens (e.g. previous token, separators) are shown with tokens; queries are content tokens. Roles of words
(relations, antecedents, rare words) are shown with words, without special tokens.

Examples are the clearest cases. They do not show how often a role's rule holds; this is in roles.csv.

The model does not run again for examples: the pass that computes the statistics records what they need (`_recording`),
before any role is known.

To add examples for another role, add a file to this package whose name does not begin with an underscore. It has a
function `among_words` or `among_tokens`, which returns where the largest weight should be (`_question`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from headscope.analysis.examples._cases import EACH, MOST_WORDS, ClearestCases, NumberedExample
from headscope.analysis.examples._question import HeadsByRole, Text, heads_with_roles
from headscope.analysis.examples._recording import (
    MOST_TEXTS,
    TokenRecorder,
    WordRecorder,
    question_among_tokens,
    questions_among_words,
)
from headscope.data.sentences import Sentence
from headscope.heads import Head, Site
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

__all__ = [
    "EACH",
    "MOST_TEXTS",
    "Text",
    "TokenRecorder",
    "WordRecorder",
    "examples_of",
    "labels_of",
    "readable_sentences",
]

FEWEST_WORDS = 4  # sentences of this length up to MOST_WORDS are preferred: they are easy to read


def readable_sentences(sentences: Iterable[Sentence]) -> list[int]:
    """The numbers of the first sentences that are short to read; of the first ones if none is."""
    numbers = {number: len(sentence.words) for number, sentence in enumerate(sentences)}
    readable = [n for n, words in numbers.items() if FEWEST_WORDS <= words <= MOST_WORDS]
    return (readable or list(numbers))[:MOST_TEXTS]


def examples_of(
    model: AttentionModel,
    study: Study,
    of_tokens: TokenRecorder | None,
    of_words: Iterable[WordRecorder] = (),
) -> pd.DataFrame:
    """The table examples.csv: examples for the roles in study.tables["roles"], from what was recorded."""
    heads_by_role = heads_with_roles(study)
    cases = ClearestCases()
    for recorder in of_words:
        _add_words(cases, recorder, heads_by_role)
    if of_tokens is not None:
        _add_tokens(cases, of_tokens, heads_by_role, model)
    return TABLES["examples"].frame(cases.rows())


def _add_words(cases: ClearestCases, recorder: WordRecorder, heads_by_role: HeadsByRole) -> None:
    """Add the cases of roles of words."""
    for site, maps in recorder.between.items():
        heads_of = heads_by_role.get(site, {})
        for number, of_text in sorted(maps.items()):
            text = recorder.texts[number]
            labels = partial(text.labels, site.stack)
            positions = None if text.window is None else text.word_numbers
            numbered = NumberedExample(number, text.example, labels, positions)
            for role, question in questions_among_words(text, site, heads_of).items():
                heads = _by_index(site, heads_of[role])
                cases.add_words(heads, role, question, of_text, numbered)


def _add_tokens(
    cases: ClearestCases,
    recorder: TokenRecorder,
    heads_by_role: HeadsByRole,
    model: AttentionModel,
) -> None:
    """Add the cases of roles of tokens."""
    for site, by_number in recorder.maxima.items():
        heads_of = heads_by_role.get(site, {})
        roles = {role: heads for role, heads in heads_of.items() if not role.relation}
        for number, maxima in sorted(by_number.items()):
            labels = cache(partial(labels_of, model, maxima.query, maxima.key))
            numbered = NumberedExample(number, recorder.examples[number], labels)
            for role, heads in roles.items():
                question = question_among_tokens(role.name, maxima.query, maxima.key)
                if question is not None:
                    among = maxima.among_content if question.among_content else maxima.among_all
                    cases.add_tokens(_by_index(site, heads), role, question, among, numbered)


def _by_index(site: Site, heads: list[int]) -> Mapping[int, Head]:
    """The heads by their index along the head axis of the site's tensors."""
    return {site.index_of(head): Head(site.stack, site.layer, head) for head in heads}


def labels_of(
    model: AttentionModel, query: Tokens, key: Tokens, row: int = 0
) -> tuple[list[str], list[str]]:
    """The tokens of queries and of keys of a sequence; the same list if it is one text."""
    labels = _decode(model, query, row)
    return labels, labels if query is key else _decode(model, key, row)


def _decode(model: AttentionModel, tokens: Tokens, row: int) -> list[str]:
    assert tokens.ids is not None
    tokenizer: Any = model.tokenizer
    ids = tokens.ids[row].tolist()
    raw = tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.decode([i]).strip() or str(token) for i, token in zip(ids, raw, strict=True)]
