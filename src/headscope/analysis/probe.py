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
from headscope.analysis.word_maps import WordMaps, control_with_embeddings, reading_heads
from headscope.config.option import record_options
from headscope.config.probe import ProbeConfig
from headscope.config.shared import Progress, Reading, Run
from headscope.config.texts import TextData
from headscope.data.word_vectors import WordVectors, mean_embeddings, read_vectors
from headscope.heads import Head
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.statistics.resampling import ResampledSums, bootstrap_share_interval
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


@dataclass
class Probes(Result):
    """Scores and weights of the probes.

    table    one row per probe: probe, uas, low, high, parameters (learned), count (words scored)
    weights  attention-only, one row per head: its weight if the dependent attends (`dependent`) and if the governor
             attends (`governor`)
    record   what is written as run.json
    """

    table: pd.DataFrame
    weights: pd.DataFrame
    record: RunRecord

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By the name of their csv."""
        return {"probes": self.table, "probe_weights": self.weights}

    def _repr_html_(self) -> str:
        html: str = self.table.to_html(index=False)
        return html


def probe(
    model: AttentionModel | str | Path,
    config: ProbeConfig,
    data: TextData,
    reading: Reading,
    run: Run,
) -> Probes:
    """Unlabelled attachment scores of probes on the attention of one model, and of baselines."""
    treebanks = Treebanks(
        list(data.treebank), list(config.test), data.lenient, data.limit, run.seed
    )
    of_file = (
        None if config.vectors is None else read_vectors(config.vectors, treebanks.vocabulary())
    )
    model = open_model(model, reading, run)
    model.self_check()
    treebanks.encode(model, data.max_length)
    keys = pieces_of if of_file is None else words_of
    sources = of_file or mean_embeddings(
        model, (key for tree in (*treebanks.train, *treebanks.test) for key in pieces_of(tree))
    )
    vectors = WordVectors(
        sources, {key for tree in treebanks.train for key in keys(tree)}, config.dimensions
    )
    heads = reading_heads(model)
    train, held_out = (
        batched(trees, vectors, keys, len(heads), run.seed)
        for trees in (treebanks.train, treebanks.test)
    )
    scores, only = _fit_all(model, heads, train, held_out, vectors, config, run)
    sections: RunRecord = {
        "config": record_options(config, data, run),
        "train": treebanks.describe("train"),
        "test": treebanks.describe("test"),
        "vectors": {
            "files": [] if config.vectors is None else describe_files([config.vectors]),
            "dimensions": vectors.dimensions,
            "known": vectors.share(keys(tree) for tree in treebanks.test),
        },
    }
    record = build_record(model, sections, command=run.typed or None, seed=run.seed, lens=None)
    return Probes(_table(scores, treebanks.test), _weights_table(heads, only), record)


def _fit_all(
    model: AttentionModel,
    heads: list[Head],
    train: list[Trees],
    test: list[Trees],
    vectors: WordVectors,
    config: ProbeConfig,
    run: Run,
) -> tuple[dict[str, Scored], AttentionOnly]:
    """Train and score every probe, one after the other, so that the maps of one model are kept at a time."""
    width, memory = vectors.dimensions, config.memory * 2**20
    only, words, random = (
        AttentionOnly(len(heads)),
        *(AttentionAndWords(len(heads), width) for _ in range(2)),
    )
    distance, branching = DistanceAndWords(width, run.seed), RightBranching()
    with_model = {"attention-only": only, "attention-and-words": words}
    sentences = sum(len(trees) for trees in train)
    steps = _Steps(3 * config.epochs * sentences, run.progress)
    scores: dict[str, Scored] = {"right-branching": score({"": branching}, test, None, vectors)[""]}
    turns: list[tuple[dict[str, Probe], Callable[[], Maps | None]]] = [
        ({"distance-and-words": distance}, lambda: None),
        (
            {"random-attention": random},
            lambda: WordMaps(control_with_embeddings(model, run.seed), heads, config.pool, memory),
        ),
        ({**with_model}, lambda: WordMaps(model, heads, config.pool, memory)),
    ]
    for probes, open_maps in turns:
        maps = open_maps()
        fit(probes, train, maps, vectors, epochs=config.epochs, seed=run.seed, done=steps.add)
        if isinstance(maps, WordMaps):
            maps.forget()
        scores |= score(probes, test, maps, vectors)
    return {name: scores[name] for name in PROBES}, only


class _Steps:
    """Progress over several trainings."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


def _table(scores: dict[str, Scored], test: list[Tree]) -> pd.DataFrame:

    rows = []
    for name, one in scores.items():
        sums = ResampledSums((2,))
        values = np.array(
            [(one.right[i], one.words[i]) for i in range(len(test))], dtype=np.float64
        )
        sums.add([sentence.unit for sentence in test], values)
        right, count = sums.total
        low, high = bootstrap_share_interval(
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
