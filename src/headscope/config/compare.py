"""Options of `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headscope.config.checks import check_model
from headscope.config.option import ADVANCED, Config, Output, option
from headscope.config.shared import Run
from headscope.config.texts import TextData


def _check_models(models: Sequence[Any]) -> None:
    for model in models:
        check_model("models")(model)


@dataclass(frozen=True)
class CompareConfig(Config):
    """The heads of two or more models side by side.

    models  the models of two studies, in their order; loaded, names or paths
    """

    command = "compare"
    group = "Measure"
    examples = (
        "headscope compare bert-study albert-study --out comparison",
        "headscope compare before after --models ./before ./after --corpus texts.txt --limit 200 --out comparison",
    )
    python = 'headscope.compare(["before", "after"]).write("comparison")'
    output = Output()
    uses = {
        TextData: ("corpus", "pairs", "column", "limit", "max_length"),
        Run: ("out", "seed", "overwrite", "no_figures"),
    }
    helps = {
        "out": "Output directory; must not exist yet",
        "corpus": "With --models: files of texts, as for headscope analyze",
        "seed": "Random seed (shuffles, bootstrap)",
    }
    required = ("out",)

    models: list[Any] = option(
        (),
        "The two models of two studies, in the order of the studies. The maps of each head are then compared on "
        "--corpus; the models must have the same shape and tokenizer",
        check=_check_models,
        metavar="MODEL MODEL",
        show_default=False,
    )
    batch_size: int = option(
        4,
        "Sequences per batch; does not change the result",
        at_least=1,
        panel=ADVANCED,
    )
