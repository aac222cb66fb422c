"""Where in the data can one see a head do its job, and where does it fail to?

Three typical and three counter examples for every head with a role, from a second pass over a few texts. An example
is one row of attention with the place of its largest weight. It is typical if that is where the role's rule wants it,
and a counter example if it is elsewhere; of each kind those with the largest weights are kept, one a text. Roles that
speak of tokens (previous token, separators …) are shown with tokens, and only content tokens look; roles that speak of
words (relations, antecedents, rare words) with words, special tokens left out.

These are the clearest cases, not usual ones: how often the rule holds is in roles.csv.

To give another role examples, add a file here whose name does not begin with an underscore, with a function
`among_words` or `among_tokens` that says where the rule wants the largest weight (`_question`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from headscope.analysis.examples._cases import EACH, MOST_WORDS, Found
from headscope.analysis.examples._question import Text, asked_of
from headscope.analysis.examples._reading import SecondPass
from headscope.data.coreference import Window
from headscope.data.examples import Example
from headscope.data.frequency import Frequencies, words_in
from headscope.data.sentences import Sentence
from headscope.model.attention_model import AttentionModel
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

__all__ = ["EACH", "examples_of"]

MOST = 200
FEWEST_WORDS = 4  # with MOST_WORDS: a sentence one can take in at a glance


def examples_of(
    model: AttentionModel,
    study: Study,
    *,
    sentences: Sequence[Sentence] = (),
    texts: Iterable[Example] = (),
    windows: Sequence[Window] = (),
    frequencies: Frequencies | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
    most: int = MOST,
) -> pd.DataFrame:
    """Examples for the roles in study.tables["roles"], from at most `most` of each kind of data.

    sentences    for relations, and for rare words; also for tokens where there are no texts
    texts        for roles that speak of tokens
    windows      of documents with mentions, for coreferential heads
    frequencies  for rare words
    """
    second = SecondPass(model, asked_of(study), Found(), max_length, batch_size)
    handy = [one for one in sentences if FEWEST_WORDS <= len(one.words) <= MOST_WORDS]
    chosen = (handy or list(sentences))[:most]
    plain = list(islice(texts, most))
    reader = "encoder" if any(site.stack == "encoder" for site in model.sites) else "decoder"
    of_sentences = []
    for one in chosen:
        known = frequencies if one.between == "words" else None
        of_sentences.append(Text(one.example(), reader, sentence=one, frequencies=known))
    of_documents = [Text(one.example, reader, window=one) for one in windows[:most]]
    firsts = [] if chosen else [example.first for example in plain]
    spoken = [words_in(text) if isinstance(text, str) else text for text in firsts]
    of_texts = [Text(Example(words), reader, frequencies=frequencies) for words in spoken if words]
    for some in (of_sentences, of_documents, of_texts):
        second.read_words(some)
    second.read_tokens(plain or [text.example for text in of_sentences or of_documents])
    return TABLES["examples"].frame(second.found.rows())
