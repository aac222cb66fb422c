"""Options of `film`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.config.analyze import AnalyzeConfig
from headscope.config.masks import check_mask
from headscope.config.option import Config, Output, option, same_option
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError


@dataclass(frozen=True)
class FilmConfig(Config):
    """Analysis of every checkpoint of a training on the same texts."""

    command = "film"
    group = "Look"
    examples = (
        "headscope pretrain --corpus wiki.txt.gz --checkpoints 12 --out small-bert",
        "headscope film small-bert --corpus wiki.txt.gz --limit 500 --out over-training",
        "headscope film small-mt --corpus multi30k/dev.tsv --pairs"
        " --statistics entropy,confidence,previous --out over-training",
    )
    python = "headscope.film"
    output = Output(kept=("header.json",))
    uses = {
        TextData: ("corpus", "treebank", "pairs", "column", "limit", "max_length"),
        Run: ("out", "seed", "device", "resume", "overwrite"),
    }
    helps = {
        "corpus": "Files of text (one per line), tab-separated pairs, FASTA or tables (csv, tsv, jsonl), also "
        "gzipped. wikipedia-pairs is a corpus that comes with headscope",
        "out": "Directory to write the study to; must not exist yet",
        "seed": "Random seed (data split, bootstrap)",
    }
    required = ("out",)

    statistics: tuple[str, ...] | None = same_option(AnalyzeConfig, "statistics")
    batch_size: int = same_option(AnalyzeConfig, "batch_size")
    thresholds: list[str] | dict[str, float] | None = same_option(  # noqa: RUF009 - a field
        AnalyzeConfig, "thresholds"
    )
    mask: str | None = option(
        None,
        "Attention mask to apply, as for analyze; dense: none",
        check=check_mask,
        show_default="the mask of the training, if any",
    )
    open_special: bool = option(
        False, "With a mask: special tokens attend to and are attended by all"
    )

    def check_values(self, values: Mapping[str, Any]) -> None:
        if values["texts"] or values["sentences"]:
            raise HeadscopeError("film requires files", expected="`corpus=FILE` or `treebank=FILE`")
        if not (values["corpus"] or values["treebank"]):
            raise HeadscopeError(
                "film requires texts",
                expected="`corpus=FILE` (wikipedia-pairs with `pairs=True` is bundled) or `treebank=FILE`",
            )
