"""How much syntax is in the attention of all heads together? Parsers that see attention weights and little else.

For each word a probe scores every candidate for its governor: the words of the sentence, and the root. The model is
frozen; its maps between words, of every head and in both directions, are the channels (Clark et al. 2019, section 5):

attention-only       two weights a head: how much it counts that the dependent looks at the candidate, and that the
                     candidate looks at the dependent
attention-and-words  the same, but each weight follows from the two words: linear in their fixed word vectors
random-attention     attention-and-words on a twin with random weights that keeps the model's embeddings
distance-and-words   one hidden layer over the two word vectors and how far apart the words are; no attention
right-branching      the next word governs; the root governs the last one

The root's channels are `s` times the attention to and from the classification token plus `e` times that of the
separator, `s` and `e` learned; its pair of word vectors is zero. In a model that has neither, the root scores 0.
The score is UAS: the share of words, punctuation left out, whose governor (the root, too) scores highest. It is taken
on sentences that no probe has seen, with an interval from resampling them.

Word vectors are a file's, or the model's input embeddings averaged over a word's pieces. Either are centred, reduced
to their main directions over the words to train on, and scaled to a mean square of 1; unknown words are zero.
Not as published: batches instead of single sentences, and several passes over the sentences instead of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.parsed_sentences import Tree, Treebanks, Trees, batched, pieces_of, words_of
from headscope.analysis.probe_models import (
    EPOCHS,
    AttentionAndWords,
    AttentionOnly,
    DistanceAndWords,
    Maps,
    Probe,
    RightBranching,
    Scored,
    fit,
    score,
)
from headscope.analysis.word_maps import WordMaps, reading_heads, untrained_twin
from headscope.data.word_vectors import WordVectors, mean_embeddings, read_vectors
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.model.word_attention import Pool, check_pool
from headscope.statistics.resampling import ResampledSums, resampled_share_interval
from headscope.study.inputs import Files, listed
from headscope.study.result import Result
from headscope.study.run_record import build_record, describe_files
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

PROBES = (
    "right-branching",
    "distance-and-words",
    "random-attention",
    "attention-only",
    "attention-and-words",
)

Progress = Callable[[int, int], None]


@dataclass
class Probes(Result):
    """What the probes found.

    table    one row a probe: probe, uas, low, high, parameters (learned), count (words scored)
    weights  attention-only, one row a head: its weight where the dependent looks (`dependent`) and where the
             governor does (`governor`)
    record   what is written as run.json
    """

    table: pd.DataFrame
    weights: pd.DataFrame
    record: RunRecord

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By the name of their csv."""
        return {"probes": self.table, "probe_weights": self.weights}


def probe(
    model: AttentionModel | str | Path | Callable[[], AttentionModel],
    treebank: Files,
    *,
    test: Files = (),
    vectors: str | Path | None = None,
    dimensions: int = 100,
    epochs: int = EPOCHS,
    lenient: bool = False,
    pool: Pool = "mean",
    max_length: int | None = None,
    limit: int | None = None,
    memory: int = 2**30,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Probes:
    """How well parsers find governors from the attention of one model, beside baselines.

    model       loaded; or what `load` takes, or a function that loads one: only done once the rest is seen to be right
    treebank    CoNLL-U files to train on
    test        others to be scored on; without them one half of `treebank` is, and the other trained on
    vectors     a file of word vectors (word2vec or GloVe, as text); by default the model's own input embeddings
    dimensions  of the word vectors, at most
    epochs      how often the probes see the sentences
    lenient     leave malformed sentences out, counted, instead of refusing the file
    pool        how the rows of a word's pieces become one: mean, first or max
    max_length  tokens a sentence may have; longer ones are left out and counted
    limit       only the first so many sentences of each
    memory      bytes for maps that are kept; others are computed anew in every epoch. Changes no result
    seed        of the halves, the order, the hidden layer, the resampling and the twin
    progress    told (sentences done, sentences in all), over all probes and epochs
    """
    for name, number in (("`limit`", limit), ("`dimensions`", dimensions), ("`epochs`", epochs)):
        if number is not None and number < 1:
            raise HeadscopeError(f"{number} is too few", where=name, expected="1 or more")
    check_pool(pool)
    data = Treebanks(listed(treebank), listed(test), lenient, limit, seed)
    of_file = None if vectors is None else read_vectors(vectors, data.vocabulary())
    model = as_model(model)
    model.canary()
    data.encode(model, max_length)
    keys = pieces_of if of_file is None else words_of
    known = of_file or mean_embeddings(
        model, (key for one in (*data.train, *data.test) for key in pieces_of(one))
    )
    vectors_of = WordVectors(known, {key for one in data.train for key in keys(one)}, dimensions)
    heads = reading_heads(model)
    train, held_out = (
        batched(some, vectors_of, keys, len(heads), seed) for some in (data.train, data.test)
    )
    found, only = _run(
        model, heads, train, held_out, vectors_of, pool, epochs, memory, seed, progress
    )
    sections: RunRecord = {
        "train": data.describe("train"),
        "test": data.describe("test"),
        "vectors": {
            "files": [] if vectors is None else describe_files([vectors]),
            "dimensions": vectors_of.dimensions,
            "known": vectors_of.share(keys(one) for one in data.test),
        },
        "options": {"epochs": epochs, "pool": pool},
    }
    record = build_record(model, sections, seed=seed, lens=None)
    return Probes(_table(found, data.test), _weights_table(heads, only), record)


def _run(
    model: AttentionModel,
    heads: list[Head],
    train: list[Trees],
    test: list[Trees],
    vectors: WordVectors,
    pool: Pool,
    epochs: int,
    memory: int,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, Scored], AttentionOnly]:
    """Every probe, trained and scored; one after the other, so that one model's maps are kept at a time."""
    width = vectors.dimensions
    only, words, random = (
        AttentionOnly(len(heads)),
        *(AttentionAndWords(len(heads), width) for _ in range(2)),
    )
    distance, branching = DistanceAndWords(width, seed), RightBranching()
    with_model = {"attention-only": only, "attention-and-words": words}
    sentences = sum(len(trees) for trees in train)
    steps = _Steps(3 * epochs * sentences, progress)
    found: dict[str, Scored] = {"right-branching": score({"": branching}, test, None, vectors)[""]}
    turns: list[tuple[dict[str, Probe], Callable[[], Maps | None]]] = [
        ({"distance-and-words": distance}, lambda: None),
        (
            {"random-attention": random},
            lambda: WordMaps(untrained_twin(model, seed), heads, pool, memory),
        ),
        ({**with_model}, lambda: WordMaps(model, heads, pool, memory)),
    ]
    for probes, open_maps in turns:
        maps = open_maps()
        fit(probes, train, maps, vectors, epochs=epochs, seed=seed, done=steps.add)
        if isinstance(maps, WordMaps):
            maps.forget()
        found |= score(probes, test, maps, vectors)
    return {name: found[name] for name in PROBES}, only


class _Steps:
    """Progress over several trainings."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


def _table(found: dict[str, Scored], test: list[Tree]) -> pd.DataFrame:

    rows = []
    for name, one in found.items():
        sums = ResampledSums((2,))
        values = np.array(
            [(one.right[i], one.words[i]) for i in range(len(test))], dtype=np.float64
        )
        sums.add([sentence.unit for sentence in test], values)
        right, count = sums.total
        low, high = resampled_share_interval(
            right, count, sums.replicates[:, 0], sums.replicates[:, 1]
        )
        rows.append((name, right / count, float(low), float(high), one.parameters, int(count)))
    table = TABLES["probes"]
    return table.frame(dict(zip(table.names, row, strict=True)) for row in rows)


def _weights_table(heads: list[Head], only: AttentionOnly) -> pd.DataFrame:

    of_dependent, of_governor = only.weight.detach().double().reshape(2, -1).tolist()
    rows = [
        (head.stack, head.layer, head.head, dependent, governor)
        for head, dependent, governor in zip(heads, of_dependent, of_governor, strict=True)
    ]
    table = TABLES["probe_weights"]
    return table.frame(dict(zip(table.names, row, strict=True)) for row in rows)
