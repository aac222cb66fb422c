"""Options of `masks compare`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headscope.config.masks import check_mask
from headscope.config.option import Output, option
from headscope.config.parsing import check_distinct, numbers
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.training import TrainingConfig

_BETWEEN_MASKS = re.compile(r",(?!\s*\w+=)")
NAMED = (
    "no-diagonal",
    "random:drop=1",
    "strided",
    "fixed",
    "longformer",
    "logsparse",
    "bigbird",
    "star",
)


def _masks(value: str | Iterable[str]) -> tuple[str, ...]:
    """`star,window:width=8` is two masks; a comma before a parameter belongs to its mask."""
    specs = (value,) if isinstance(value, str) else tuple(value)
    return tuple(spec.strip() for joined in specs for spec in _BETWEEN_MASKS.split(joined))


def _check_masks(masks: Iterable[str]) -> None:
    for mask in masks:
        check_mask(mask)


@dataclass(frozen=True)
class CompareMasksConfig(TrainingConfig):
    """The cost of masks on a task: applied to the model, after a repair, and trained with from the start."""

    command = "masks compare"
    examples = (
        "headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks",
        "headscope masks compare ./minilm-mnli --task mnli --data glue --repair 1 --start"
        " minilm --seeds 0,1,2 --out masks",
        "headscope masks compare minilm --task stsb --data stsb_dev.tsv --mask star --mask mine.npy --out masks",
    )
    python = "headscope.compare_masks"
    splits = ("report_on",)
    output = Output(kept=("header.json",))
    uses = {
        TaskData: ("task", "data", "report_on", "report_limit", "limit", "max_length", "columns", "labels"),
        Reading: ("open_special", "pooling", "prompt"),
        Run: ("out", "revision", "device", "resume", "overwrite", "no_figures"),
    }  # fmt: skip
    defaults = {"report_on": "dev"}
    helps = {
        "epochs": "With --start: number of epochs of that training",
        "limit": "Maximum number of training examples, evenly spaced over the file",
        "open_special": "Exempt special tokens from every mask; they attend to all tokens, and all tokens attend to "
        "them",
    }
    required = ("out",)

    mask: list[str] | tuple[str, ...] | None = option(
        None,
        "Masks to compare, as names or files, separated by commas; the option may be repeated",
        parse=_masks,
        check=_check_masks,
        show_default="eight named masks",
    )
    repair: int = option(
        0,
        "Number of epochs to train MODEL further under each mask; 0 does not train it",
        at_least=0,
    )
    start: str | Path | None = option(
        None,
        "Model that was not trained on the task yet, e.g. minilm; it is trained on the task under each mask",
        show_default="none",
    )
    seeds: tuple[int, ...] = option(
        (0,),
        "Random seeds (training, randomly drawn masks); one run each",
        parse=numbers("seeds"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_distinct("mask", self.mask)
        check_distinct("seeds", self.seeds)

    @property
    def masks(self) -> tuple[str, ...]:
        """The masks to compare."""
        return NAMED if self.mask is None else tuple(self.mask)

    @property
    def trains(self) -> bool:
        """Whether anything is trained."""
        return self.repair > 0 or self.start is not None
