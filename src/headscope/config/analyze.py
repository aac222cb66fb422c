"""Options of `analyze`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headscope.config import names
from headscope.config.checks import check_choice
from headscope.config.option import ADVANCED, Config, Output, option
from headscope.config.parsing import lens_list, name_list
from headscope.config.shared import POOLINGS, Reading, Run
from headscope.config.texts import TextData
from headscope.config.thresholds import DEFAULTS, threshold_values
from headscope.errors import HeadscopeError


def check_statistics(statistics: tuple[str, ...]) -> None:
    """Refuse a name that is not a statistic of plain texts."""
    for name in statistics:
        check_choice(name, names.statistics_of_texts(), "`statistics`", "is not a statistic")


# Raw attention first, then lenses of the forward pass, then lenses that need a backward pass
_LENSES = sorted(
    names.LENSES, key=lambda name: (name != "raw", name in names.GRADIENT_LENSES, name)
)

_LENS_NOTES = {
    "raw": "the attention weights; always included",
    "effective": "without the part that cannot change the head's output",
    "effective-simplex": "effective, with rows that sum to 1",
    "norm": "weights times the norms of value vectors",
    "gradient": "weights times their gradients",
}


@dataclass(frozen=True)
class AnalyzeConfig(Config):
    """Statistics of every head over a corpus: their names, the lenses, and the thresholds of roles."""

    command = "analyze"
    group = "Look"
    examples = (
        "headscope analyze minilm --corpus wikipedia-pairs --pairs --out study",
        "headscope analyze ./my-model --corpus reactions.txt.gz --max-length 256 --out study",
        "headscope analyze minilm --treebank dev.conllu --frequency english --control --out study",
        "headscope analyze opus-mt-en-fr --corpus news.tsv --pairs --statistics entropy,confidence --out study",
        "headscope analyze rxnmapper --corpus reactions.csv --column smiles --out study",
        "headscope analyze minilm --corpus wikipedia-pairs --pairs --lens raw,effective,norm,gradient --out study",
        "headscope analyze small-bert --checkpoints --corpus wiki.txt.gz --limit 500 --out over-training",
    )
    python = "headscope.analyze"
    output = Output(kept=("header.json",))
    uses = {
        TextData: ("corpus", "treebank", "coreference", "frequency", "lenient", "pairs", "column", "limit",
                   "max_length", "long_texts"),
        Reading: ("mask", "open_special", "pooling"),
        Run: ("out", "seed", "revision", "device", "dtype", "resume", "overwrite", "no_figures"),
    }  # fmt: skip
    helps = {
        "limit": "Maximum number of texts, from the start of the corpus; without --corpus, of sentences and documents",
        "max_length": "Maximum number of tokens per sequence; --long-texts states what happens to longer texts",
        "pooling": f"With --lens gradient: pooling of token states into the vector whose gradient is taken: {POOLINGS}",
        "seed": "Random seed (data split, bootstrap, random-weight control)",
        "resume": "With --checkpoints: resume a stopped run; the result is that of an uninterrupted run",
    }
    panels = {"resume": "Checkpoints"}
    required = ("out",)

    checkpoints: bool = option(
        False,
        "Analyse every checkpoint of a training. MODEL is the directory that pretrain or finetune wrote with "
        "--checkpoints N",
        panel="Checkpoints",
    )
    control: bool = option(
        False,
        "With --treebank: also measure the syntactic relations in a random-weight control of the model",
    )
    word_pooling: Literal["mean", "first", "max"] = option(
        "mean",
        "Pooling of attention from tokens to words, for words of several tokens: mean, first or max",
        choices=names.POOLS,
        panel=ADVANCED,
    )
    all_rows: bool = option(
        False,
        "Compute distances between heads from all rows of attention (slow) instead of a few rows of each text",
        panel=ADVANCED,
    )
    lens: tuple[str, ...] = option(
        ("raw",),
        "Lenses (kinds of attention maps) to measure, separated by commas: "
        f"{', '.join(_LENSES)}. "
        + "".join(f"{name}: {_LENS_NOTES[name]}. " for name in _LENSES if name in _LENS_NOTES)
        + "See docs/explanation/lenses.md",
        parse=lens_list,
    )
    statistics: tuple[str, ...] | None = option(
        None,
        "Statistics to compute, separated by commas, e.g. entropy,previous",
        parse=name_list("statistics"),
        check=check_statistics,
        show_default="all",
    )
    batch_size: int = option(
        32, "Sequences per batch; does not change the result", at_least=1, panel=ADVANCED
    )
    thresholds: list[str] | dict[str, float] | None = option(
        None,
        "Thresholds (0 to 1) that a head must pass to get a role, e.g. positional=0.8; several are separated by "
        "commas, or the option is repeated. Names: "
        f"{', '.join([*DEFAULTS][:-1])} and {[*DEFAULTS][-1]}. docs/reference/tables.md explains them",
        parse=threshold_values,
        flags=("--threshold",),
        metavar="NAME=VALUE",
        show_default="see docs/reference/tables.md",
        panel=ADVANCED,
    )

    def check_values(self, values: Mapping[str, Any]) -> None:
        inputs = ("corpus", "texts", "treebank", "sentences", "coreference")
        if not any(values[name] for name in inputs):
            raise HeadscopeError(
                "analyze requires texts",
                expected="`corpus=FILE`, `treebank=FILE` or `coreference=FILE`",
                fix=f"For example: {type(self).examples[0]}",
            )
        if self.checkpoints and (values["texts"] or values["sentences"]):
            raise HeadscopeError(
                "`checkpoints=True` requires files", expected="`corpus=FILE` or `treebank=FILE`"
            )
