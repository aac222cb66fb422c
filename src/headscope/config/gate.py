"""Options of `gate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.option import ADVANCED, Output, option
from headscope.config.parsing import check_distinct, numbers, pairs
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.training import FROM_SCRATCH_HELPS, NewModelConfig, TrainingConfig
from headscope.errors import HeadscopeError

# Learning rate of gates; share of the steps after which they are fixed to 0 or 1
RATE, SETTLE = 0.1, 0.75


@dataclass(frozen=True)
class GateTarget:
    """The target of one training: an L0 penalty (for all heads, or by stack), or a number of heads to keep."""

    penalty: float | Mapping[str, float] | None = None
    keep: int | None = None

    @property
    def name(self) -> str:
        if self.keep is not None:
            return f"keep-{self.keep}"
        if isinstance(self.penalty, Mapping):
            return "penalty-" + "-".join(
                f"{stack}-{penalty:g}" for stack, penalty in self.penalty.items()
            )
        return f"penalty-{self.penalty:g}"


def _penalties(value: Any) -> tuple[float | dict[str, float], ...]:
    """The penalties: 0.001,0.01 are two, encoder=0.01,cross=0.002 is one with a number for each stack."""
    if isinstance(value, tuple):
        return value  # parsed already
    try:
        if isinstance(value, Mapping):
            penalties: tuple[Any, ...] = (
                {stack: float(number) for stack, number in value.items()},
            )
        elif isinstance(value, str) and "=" in value:
            by_stack = pairs("penalty")(value)
            penalties = ({stack: float(number) for stack, number in by_stack.items()},)
        else:
            words = value.split(",") if isinstance(value, str) else value
            penalties = tuple(map(float, words if isinstance(words, list) else [words]))
    except (TypeError, ValueError) as cause:
        expected = "0.001,0.01 or encoder=0.01,cross=0.002"
        raise HeadscopeError(
            f"`penalty` must be numbers such as {expected}, got {value!r}"
        ) from cause
    values = [
        p
        for penalty in penalties
        for p in (penalty.values() if isinstance(penalty, dict) else (penalty,))
    ]
    if not all(number >= 0 for number in values):
        raise HeadscopeError(f"`penalty` must be at least 0, got {value}")
    return penalties


@dataclass(frozen=True)
class GateConfig(TrainingConfig, NewModelConfig):
    """Learn which heads to keep: hard-concrete gates trained with or without the weights."""

    command = "gate"
    group = "Learn"
    examples = (
        "headscope gate ./minilm-mnli --task mnli --data glue --keep 20,40 --out gated",
        "headscope gate ./minilm-mnli --task mnli --data glue --penalty 0.002 --freeze-weights --out gated",
        "headscope gate opus-mt-en-fr --task translation --data multi30k --from-scratch"
        " --layers 3 --keep 12 --out gated",
        "headscope prune gated/keep-20 --plan gated/keep-20/plan.json --out small",
    )
    python = "headscope.gate"
    splits = ("train", "select_on", "report_on")
    output = Output(kept=("header.json",))
    uses = {
        TaskData: ("task", "data", "select_on", "report_on",
                   "report_limit", "limit", "max_length", "columns", "labels"),
        Reading: ("pooling", "prompt"),
        Run: ("out", "seed", "revision", "device", "resume", "overwrite", "no_figures"),
    }  # fmt: skip
    defaults = {"select_on": "dev:half-a", "report_on": "dev:half-b"}
    helps = {
        "data": "Data of the task: a directory with train and dev files, or a data set of the Hugging Face hub "
        "(datasets:nyu-mll/glue:mnli)",
        "limit": "Maximum number of training examples, evenly spaced over the file",
        "select_on": "Split to evaluate on after every epoch, to follow the training; at most 500 of its "
        "examples are used",
        "seed": "Random seed (gate noise, dropout, new weights, order of examples)",
        **FROM_SCRATCH_HELPS,
    }
    required = ("out",)

    keep: tuple[int, ...] | None = option(
        None,
        "Number of heads to keep, e.g. 20; several numbers, e.g. 20,40, are one run each. Required unless --penalty is "
        "given",
        parse=numbers("keep"),
        show_default=False,
    )
    penalty: tuple[float | dict[str, float], ...] | None = option(
        None,
        "Instead of --keep: L0 penalty per open head, in nats; a larger penalty closes more heads. 0.001,0.01 are two "
        "runs; encoder=0.01,cross=0.002 is one run with a penalty for each stack",
        parse=_penalties,
        show_default=False,
    )
    freeze_weights: bool = option(
        False, "Train the gates only; the weights of the model do not change"
    )
    gate_rate: float = option(RATE, "Learning rate of the gates", above=0, panel=ADVANCED)
    settle: float = option(
        SETTLE,
        "Share of the steps (0 to 1) after which gates are fixed to 0 or 1; the remaining steps train the weights only",
        above=0,
        at_most=1,
        panel=ADVANCED,
    )
    roles: Path | None = option(
        None,
        "Study of the same model, written by headscope analyze; its roles of the kept heads are added to the result",
        show_default="none",
        panel=ADVANCED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.keep is None) == (self.penalty is None):
            count = "neither" if self.keep is None else "both"
            raise HeadscopeError(f"gate requires either `keep` or `penalty`, got {count}")
        check_distinct("keep", self.keep)
        check_distinct("penalty", self.penalty)

    @property
    def targets(self) -> tuple[GateTarget, ...]:
        """One target for each training."""
        if self.keep is not None:
            return tuple(GateTarget(keep=number) for number in self.keep)
        return tuple(GateTarget(penalty=penalty) for penalty in self.penalty or ())
