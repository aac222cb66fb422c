"""Options of `head`."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config.option import Config
from headscope.config.shared import Run
from headscope.config.texts import TextData

BUNDLED_PAIRS = 100  # read if no texts are given


@dataclass(frozen=True)
class HeadConfig(Config):
    """The results of a study about one head. For a model, a small study is computed first."""

    command = "head"
    group = "Look"
    examples = (
        "headscope head minilm 0.2",
        "headscope head study 3.7",
        "headscope head minilm 3.7 --treebank dev.conllu --json",
    )
    python = 'headscope.head("minilm", "0.2")'
    uses = {
        TextData: ("corpus", "treebank", "coreference", "frequency", "pairs", "column", "limit",
                   "max_length"),
        Run: ("seed", "revision", "device", "dtype"),
    }  # fmt: skip
    helps = {
        "corpus": "Files of texts to analyse a model on, as for headscope analyze; not for a study, which has its "
        "own texts",
        "limit": f"Maximum number of texts, from the start of the corpus. Without texts, {BUNDLED_PAIRS} bundled pairs "
        "of Wikipedia paragraphs are read",
    }
