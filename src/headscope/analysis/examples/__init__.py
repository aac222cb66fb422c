"""Examples and counter examples of roles in texts.

For every head with a role, three typical and three counter examples are taken from a second pass over a few texts. An
example is one row of attention with the position of its largest weight. It is typical if this position agrees with the
role, else it is a counter example. Of each kind, the examples with the largest weights are kept, at most one per text.

Roles of tokens (e.g. previous token, separators) are shown with tokens; queries are content tokens. Roles of words
(relations, antecedents, rare words) are shown with words, without special tokens.

Examples are the clearest cases. They do not show how often a role's rule holds; this is in roles.csv.

To add examples for another role, add a file to this package whose name does not begin with an underscore. It has a
function `among_words` or `among_tokens`, which returns where the largest weight should be (`_question`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from headscope.analysis.examples._cases import EACH, MOST_WORDS, ClearestCases
from headscope.analysis.examples._question import Text, heads_with_roles
from headscope.analysis.examples._reading import SecondPass
from headscope.data.examples import Example
from headscope.data.frequency import words_in
from headscope.model.attention_model import AttentionModel
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.inputs import Annotations
    from headscope.study.study import Study

__all__ = ["EACH", "examples_of"]

MOST = 200  # maximum number of texts of each kind
FEWEST_WORDS = 4  # sentences of this length up to MOST_WORDS are preferred: they are easy to read


def examples_of(
    model: AttentionModel,
    study: Study,
    annotations: Annotations,
    texts: Iterable[Example] = (),
    *,
    max_length: int | None = None,
    batch_size: int = 16,
) -> pd.DataFrame:
    """The table examples.csv: examples for the roles in study.tables["roles"].

    annotations  sentences, for relations and rare words (and for roles of tokens if there are no texts); windows of
                 documents with mentions, for coreferential heads; word frequencies, for rare words
    texts        texts for roles of tokens
    """
    sentences, frequencies = annotations.sentences, annotations.frequencies
    second = SecondPass(model, heads_with_roles(study), ClearestCases(), max_length, batch_size)
    reader = "encoder" if any(site.stack == "encoder" for site in model.sites) else "decoder"
    plain = list(islice(texts, MOST))
    readable = [s for s in sentences if FEWEST_WORDS <= len(s.words) <= MOST_WORDS]
    selected = (readable or sentences)[:MOST]
    of_sentences = [
        Text(s.example(), reader, s, frequencies=frequencies if s.between == "words" else None)
        for s in selected
    ]
    of_documents = [
        Text(window.example, reader, window=window) for window in annotations.windows[:MOST]
    ]
    firsts = [] if selected else [example.first for example in plain]
    words = [words_in(text) if isinstance(text, str) else text for text in firsts]
    of_texts = [Text(Example(text), reader, frequencies=frequencies) for text in words if text]
    for group in (of_sentences, of_documents, of_texts):
        second.read_words(group)
    second.read_tokens(plain or [text.example for text in of_sentences or of_documents])
    return TABLES["examples"].frame(second.cases.rows())
