"""Probes for syntax in the attention of all heads together: parsers with attention weights as features.

For each word (the dependent), a probe scores every candidate for its governor: the words of the sentence, and the root.
The model is not trained. The features are called channels: the attention between two words, in every head and in both
directions (Clark et al. 2019, section 5). The probes differ in what they use:

attention-only       two weights per head, for attention of the dependent to the candidate and of the candidate to the
                     dependent
attention-and-words  the same, but each weight depends on the two words: linear in their fixed word vectors
random-attention     attention-and-words on a control with random weights that keeps the model's embeddings
distance-and-words   one hidden layer over the two word vectors and the distance of the words; no attention
right-branching      not trained: the governor of a word is the next word; that of the last word is the root

The root is not a token. Its channels are s times the attention to and from the classification token, plus e times the
attention to and from the separator, where s and e are learned; its word vectors are zero. In a model without these
tokens the score of the root is 0.

The result is UAS (unlabelled attachment score): the share of words, without punctuation, whose true governor has the
highest score. It is computed on held-out sentences, with an interval from resampling them.

Word vectors come from a file, or are the model's input embeddings averaged over a word's pieces. Both are centred,
reduced to their principal components over the training words, and scaled to a mean square of 1. Vectors of unknown
words are zero. Training differs from the paper: batches instead of single sentences, and several epochs instead of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.parsed_sentences import (
    Tree,
    Treebanks,
    Trees,
    make_batches,
    pieces_of,
    words_of,
)
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
from headscope.model.load import ModelSource
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
    weights  one row per head: weights of the probe attention-only, for the attention of the dependent to the governor
             (`dependent`) and of the governor to the dependent (`governor`)
    record   the run record (run.json)
    """

    table: pd.DataFrame
    weights: pd.DataFrame
    record: RunRecord

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by the name of their csv."""
        return {"probes": self.table, "probe_weights": self.weights}

    def _repr_html_(self) -> str:
        html: str = self.table.to_html(index=False)
        return html


def probe(
    model: ModelSource, config: ProbeConfig, data: TextData, reading: Reading, run: Run
) -> Probes:
    """Unlabelled attachment scores of probes of one model's attention, and of baselines."""
    treebanks = Treebanks(
        list(data.treebank), list(config.test), data.lenient, data.limit, run.seed
    )
    from_file = (
        None if config.vectors is None else read_vectors(config.vectors, treebanks.vocabulary())
    )
    model = open_model(model, reading, run)
    model.self_check()
    treebanks.encode(model, data.max_length)
    keys = pieces_of if from_file is None else words_of
    sources = from_file or mean_embeddings(
        model, (key for tree in (*treebanks.train, *treebanks.test) for key in pieces_of(tree))
    )
    vectors = WordVectors(
        sources, {key for tree in treebanks.train for key in keys(tree)}, config.dimensions
    )
    heads = reading_heads(model)
    train, held_out = (
        make_batches(trees, vectors, keys, len(heads), run.seed)
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
    """Train and score all probes. Returns their scores, and the trained probe attention-only.

    Probes are grouped by the model whose maps they use, so that the maps of only one model are in memory.
    """
    width, memory = vectors.dimensions, config.memory * 2**20
    only = AttentionOnly(len(heads))
    words, random = (AttentionAndWords(len(heads), width) for _ in range(2))
    distance, branching = DistanceAndWords(width, run.seed), RightBranching()
    sentences = sum(len(trees) for trees in train)
    steps = _Steps(3 * config.epochs * sentences, run.progress)
    scores: dict[str, Scored] = {"right-branching": score({"": branching}, test, None, vectors)[""]}
    # probes that use the same maps, and a function that opens these maps
    groups: list[tuple[dict[str, Probe], Callable[[], Maps | None]]] = [
        ({"distance-and-words": distance}, lambda: None),
        (
            {"random-attention": random},
            lambda: WordMaps(
                control_with_embeddings(model, run.seed), heads, config.word_pooling, memory
            ),
        ),
        (
            {"attention-only": only, "attention-and-words": words},
            lambda: WordMaps(model, heads, config.word_pooling, memory),
        ),
    ]
    for probes, open_maps in groups:
        maps = open_maps()
        fit(probes, train, maps, vectors, epochs=config.epochs, seed=run.seed, done=steps.add)
        if isinstance(maps, WordMaps):
            maps.forget()
        scores |= score(probes, test, maps, vectors)
    return {name: scores[name] for name in PROBES}, only


class _Steps:
    """Progress over the trainings of all probes, in sentences."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


def _table(scores: dict[str, Scored], test: list[Tree]) -> pd.DataFrame:
    table, rows = TABLES["probes"], []
    for name, scored in scores.items():
        values = [(scored.right[i], scored.words[i]) for i in range(len(test))]
        sums = ResampledSums((2,))
        sums.add([tree.unit for tree in test], np.array(values, dtype=np.float64))
        right, count = sums.total
        low, high = bootstrap_share_interval(right, count, *sums.replicates.T)
        row = (name, right / count, float(low), float(high), scored.parameters, int(count))
        rows.append(dict(zip(table.names, row, strict=True)))
    return table.frame(rows)


def _weights_table(heads: list[Head], only: AttentionOnly) -> pd.DataFrame:
    weights = only.weight.detach().double().reshape(2, -1).T.tolist()
    rows = [
        asdict(head) | {"dependent": dependent, "governor": governor}
        for head, (dependent, governor) in zip(heads, weights, strict=True)
    ]
    return TABLES["probe_weights"].frame(rows)
