"""Options of `pretrain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.option import TRAINED_STATE, Output, option
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.config.training import ModelSizes, TrainingConfig, checkpoints_option
from headscope.errors import HeadscopeError


@dataclass(frozen=True)
class PretrainConfig(TrainingConfig, ModelSizes):
    """Train a new encoder to predict masked tokens of a text corpus.

    architecture  `--config` in the shell
    """

    command = "pretrain"
    group = "Models"
    examples = (
        "headscope pretrain --corpus wiki.txt.gz --out small-bert",
        "headscope pretrain --corpus wiki.txt.gz --vocabulary 8000 --hidden 256 --epochs 3"
        " --checkpoints 12 --out small-bert",
        "headscope pretrain --config ./my-roberta/config.json --tokenizer ./my-roberta --corpus a.txt b.txt --out mine",
        "headscope analyze small-bert --checkpoints --corpus wiki.txt.gz --limit 500 --out over-training",
    )
    python = "headscope.pretrain"
    output = Output("training.json", TRAINED_STATE)
    uses = {
        TextData: ("corpus", "column", "limit", "max_length"),
        Reading: ("mask", "open_special"),
        Run: ("out", "seed", "device", "resume", "overwrite"),
    }
    defaults = {"max_length": 128}
    helps = {
        "corpus": "Files of texts: plain text (one text per line), FASTA, or tables (csv, tsv, jsonl); also gzipped",
        "column": "Column of a csv, tsv or jsonl corpus that holds the texts, e.g. smiles",
        "max_length": "Maximum number of tokens per sequence, and number of positions of the model",
        "out": "Output directory of the model; must not exist yet",
        "seed": "Random seed (weights, masked tokens, dropout, order of sequences)",
    }
    required = ("corpus", "out")
    python_only = ()

    architecture: str | Path | None = option(
        None,
        "Architecture of the encoder: a named model, a directory, an id on the Hugging Face hub, or a config.json",
        flags=("--config",),
        show_default="a small BERT: 4 layers, 4 heads, hidden size 128",
    )
    tokenizer: str | Path | None = option(
        None,
        "Model whose tokenizer is used: a name, a directory, or an id on the Hugging Face hub",
        show_default="that of --config; without --config that of minilm",
    )
    epochs: int = option(
        1,
        "Number of passes over the training sequences; other tokens are masked in each",
        at_least=1,
    )
    steps: int | None = option(
        None,
        "Number of training steps, instead of --epochs",
        at_least=1,
        show_default="as --epochs states",
    )
    learning_rate: float = option(1e-3, "Maximum learning rate, after the warm-up", above=0)
    held_out: float = option(
        0.02,
        "Share of the texts (above 0, at most 0.5) to evaluate on; these texts are not trained on",
        above=0,
        at_most=0.5,
    )
    checkpoints: int | None = checkpoints_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer is not None and self.vocabulary is not None:
            raise HeadscopeError(
                "`tokenizer` and `vocabulary` cannot be combined",
                fix="Leave one of them out: a tokenizer is either reused or learned",
            )

    def check_values(self, values: Mapping[str, Any]) -> None:
        if not (values["corpus"] or values["texts"]):
            raise HeadscopeError("pretrain requires `corpus`")
        if values["sentences"]:
            raise HeadscopeError("`sentences` has no effect in pretrain")
