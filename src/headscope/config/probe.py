"""Options of `probe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headscope.config import names
from headscope.config.option import ADVANCED, Config, Output, option
from headscope.config.parsing import file_list
from headscope.config.shared import Run
from headscope.config.texts import TextData

EPOCHS = 6


@dataclass(frozen=True)
class ProbeConfig(Config):
    """Dependency parsing from the attention weights of all heads together."""

    command = "probe"
    group = "Measure"
    examples = (
        "headscope probe minilm --treebank train.conllu --test dev.conllu --out probes",
        "headscope probe ./my-model --treebank all.conllu --vectors glove.6B.100d.txt --out probes",
    )
    python = "headscope.probe"
    output = Output()
    uses = {
        TextData: ("treebank", "lenient", "limit", "max_length"),
        Run: ("out", "seed", "revision", "device", "dtype", "overwrite"),
    }
    helps = {
        "treebank": "Treebanks in CoNLL-U format to train the probes on. ewt-sample is a treebank that comes with "
        "headscope",
        "lenient": "Skip and count malformed sentences; without this option they are an error",
        "limit": "Maximum number of sentences of each treebank, from its start",
        "max_length": "Maximum number of tokens per sentence; longer ones are skipped and counted",
        "seed": "Random seed (data split, order of sentences, initial weights of the probes, bootstrap, "
        "random-weight control)",
    }
    required = ("treebank", "out")

    test: list[str | Path] = option(
        (),
        "Treebanks in CoNLL-U format to evaluate the probes on",
        parse=file_list,
        metavar="FILE…",
        show_default="half of --treebank; the probes are trained on the other half",
    )
    vectors: str | Path | None = option(
        None,
        "Word vectors for the probes that use words in addition to attention: a file in the text format of word2vec "
        "and GloVe",
        metavar="FILE",
        show_default="the token embeddings of the model",
    )
    dimensions: int = option(
        100,
        "Maximum number of dimensions of the word vectors; longer vectors are reduced to their principal components",
        at_least=1,
        panel=ADVANCED,
    )
    epochs: int = option(EPOCHS, "Number of passes over the training sentences", at_least=1)
    word_pooling: Literal["mean", "first", "max"] = option(
        "mean",
        "Pooling of attention from tokens to words, for words of several tokens: mean, first or max",
        choices=names.POOLS,
        panel=ADVANCED,
    )
    memory: int = option(
        1024,
        "Memory for attention maps, in megabytes; maps beyond it are recomputed. Does not change the result",
        at_least=0,
        panel=ADVANCED,
    )
