"""Options of `masks learn`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headscope.config.names import MASK_FORMS, PER
from headscope.config.option import ADVANCED, Output, option
from headscope.config.parsing import check_distinct, decimals, numbers
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.training import TrainingConfig
from headscope.errors import HeadscopeError

# Learning rate of a mask; share of the steps after which its values are 0 or 1
RATE, SETTLE = 0.1, 0.75
TASK_OF_OBJECTIVE = {"mlm": "masked"}


@dataclass(frozen=True)
class MaskTarget:
    """The target of one training: a penalty on open attention, a sparsity, or neither (a soft mask)."""

    penalty: float | None = None
    sparsity: float | None = None
    seed: int = 0

    @property
    def kind(self) -> str:
        if self.sparsity is not None:
            return f"sparsity-{self.sparsity:g}"
        return "soft" if self.penalty is None else f"penalty-{self.penalty:g}"

    @property
    def name(self) -> str:
        return f"{self.kind}-seed-{self.seed}"


def _check_penalties(penalties: tuple[float, ...]) -> None:
    for penalty in penalties:
        if not 0 <= penalty < float("inf"):
            raise HeadscopeError(f"`penalty` must be at least 0, got {penalty:g}")


def _check_sparsities(sparsities: tuple[float, ...]) -> None:
    for sparsity in sparsities:
        if not 0 < sparsity < 1:
            raise HeadscopeError(f"`sparsity` must be between 0 and 1, got {sparsity:g}")


@dataclass(frozen=True)
class LearnMaskConfig(TrainingConfig):
    """Learn which positions need to attend to which: a mask trained with or without the weights."""

    command = "masks learn"
    group = "Learn"
    examples = (
        "headscope masks learn ./minilm-mnli --task mnli --data glue --sparsity 0.8,0.9 --out masks",
        "headscope masks learn ./minilm-mnli --task mnli --data glue --soft --freeze-weights --seeds"
        " 0,1,2 --out which-positions",
        "headscope masks learn rxnfp --objective mlm --corpus reactions.txt --penalty 1"
        " --structured --per head --out masks",
        "headscope evaluate ./minilm-mnli --task mnli --data glue --mask masks/sparsity-0.9-seed-0/mask.npz",
    )
    python = "headscope.learn_mask"
    splits = ("train", "select_on", "report_on")
    output = Output(kept=("header.json",))
    uses = {
        TaskData: ("task", "data", "select_on", "report_on",
                   "report_limit", "limit", "max_length", "columns", "labels"),
        Reading: ("pooling", "prompt"),
        Run: ("out", "revision", "device", "resume", "overwrite", "no_figures"),
    }  # fmt: skip
    defaults = {"select_on": "dev:half-a", "report_on": "dev:half-b"}
    helps = {
        "data": "Data of the task: a directory with train and dev files, or a data set of the Hugging Face hub "
        "(datasets:nyu-mll/glue:mnli)",
        "limit": "Maximum number of training examples, evenly spaced over the file",
        "select_on": "Split to evaluate on after every epoch, to follow the training; at most 500 of its "
        "examples are used",
    }
    required = ("out",)
    completed = ("task", "data")

    objective: str | None = option(
        None,
        "Training objective instead of --task and --data: mlm (predict masked tokens of --corpus)",
        choices=tuple(TASK_OF_OBJECTIVE),
        show_default=False,
    )
    corpus: str | Path | None = option(None, "With --objective: file of texts", show_default=False)
    penalty: tuple[float, ...] | None = option(
        None,
        "Penalty on open positions, in nats: what a fully open mask adds to the loss. Several values, e.g. 0.1,1, are "
        "one run each. One of --penalty, --sparsity and --soft is required",
        parse=decimals("penalty"),
        check=_check_penalties,
        show_default=False,
    )
    sparsity: tuple[float, ...] | None = option(
        None,
        "Share of the pairs of positions to forbid (0 to 1), e.g. 0.9; several values, e.g. 0.8,0.9, are one run each",
        parse=decimals("sparsity"),
        check=_check_sparsities,
        show_default=False,
    )
    soft: bool = option(
        False,
        "Learn a soft mask: a value between 0 and 1 for each pair of positions, instead of open or forbidden",
    )
    structured: bool = option(
        False,
        "Learn one value per distance instead of per pair of positions; the first and last positions stay open",
    )
    without_diagonal: bool = option(False, "Never let a token attend to itself", panel=ADVANCED)
    per: Literal["model", "layer", "head"] = option(
        "model", "Learn one mask per model, layer or head", choices=PER
    )
    form: str = option(
        "renormalised",
        "Effect on attention of mask values between 0 and 1: renormalised (weights are multiplied by them and "
        "renormalised), additive (logits are lowered) or multiplicative (weights are multiplied only)",
        choices=MASK_FORMS,
        panel=ADVANCED,
    )
    freeze_weights: bool = option(
        False, "Train the mask only; the weights of the model do not change"
    )
    mask_rate: float = option(RATE, "Learning rate of the mask's values", above=0, panel=ADVANCED)
    settle: float = option(
        SETTLE,
        "Share of the steps (0 to 1) after which the mask is fixed to 0 or 1; the remaining steps train the weights "
        "only",
        above=0,
        at_most=1,
        panel=ADVANCED,
    )
    seeds: tuple[int, ...] = option(
        (0,),
        "Random seeds (mask noise, dropout, order of examples); one run each",
        parse=numbers("seeds"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty is not None and self.sparsity is not None:
            raise HeadscopeError("masks learn requires either `penalty` or `sparsity`, got both")
        if self.soft and self.sparsity is not None:
            raise HeadscopeError("`sparsity` must be left out with `soft=True`")
        if self.penalty is None and self.sparsity is None and not self.soft:
            raise HeadscopeError("masks learn requires `penalty`, `sparsity` or `soft=True`")
        for name in ("penalty", "sparsity", "seeds"):
            check_distinct(name, getattr(self, name))

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Derive `task` and `data` from `objective` and `corpus`."""
        task, data, objective, corpus = (
            values.get(name) for name in ("task", "data", "objective", "corpus")
        )
        if (task is None) == (data is None) and (objective is None) == (corpus is None):
            if task is not None and corpus is None:
                return dict(values)
            if task is None and corpus is not None:
                # `masked` is a stand-in if the objective is unknown: its own check refuses it later.
                task = TASK_OF_OBJECTIVE.get(str(objective), "masked")
                return {**values, "task": task, "data": corpus}
        raise HeadscopeError(
            "masks learn requires either `task` and `data`, or `objective` and `corpus`"
        )

    @property
    def targets(self) -> tuple[MaskTarget, ...]:
        """One target for each training."""
        if self.sparsity is not None:
            kinds = [MaskTarget(sparsity=sparsity) for sparsity in self.sparsity]
        else:
            kinds = [MaskTarget(penalty=penalty) for penalty in self.penalty or (None,)]
        return tuple(
            MaskTarget(kind.penalty, kind.sparsity, seed) for kind in kinds for seed in self.seeds
        )
