"""Options of `finetune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.config.checks import check_model, check_patterns
from headscope.config.option import ADVANCED, TRAINED_STATE, Output, option
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.training import (
    FROM_SCRATCH_HELPS,
    NewModelConfig,
    TrainingConfig,
    checkpoints_option,
)


@dataclass(frozen=True)
class FinetuneConfig(TrainingConfig, NewModelConfig):
    """Train a model on a task and keep its best epoch. `distil` may be a loaded model in Python."""

    command = "finetune"
    group = "Models"
    examples = (
        "headscope finetune minilm --task mnli --data glue --out minilm-mnli",
        "headscope finetune minilm --task cola --data cola --epochs 5 --learning-rate 5e-5 --out minilm-cola",
        "headscope finetune minilm --task mnli --data glue --fix '*.0-6=raganato' --out fixed-mnli",
        "headscope finetune opus-mt-en-fr --task translation --data multi30k --from-scratch --layers 3 --out small-mt",
        "torchrun --nproc-per-node 2 -m headscope finetune minilm --task mnli --data glue --out minilm-mnli",
    )
    python = "headscope.finetune"
    splits = ("train", "select_on")
    output = Output("training.json", TRAINED_STATE)
    uses = {
        TaskData: ("task", "data", "select_on", "columns", "labels", "limit", "max_length"),
        Reading: ("mask", "open_special", "pooling", "prompt"),
        Run: ("out", "seed", "revision", "device", "resume", "overwrite"),
    }
    defaults = {"select_on": "dev"}
    helps = {
        "out": "Output directory of the model; must not exist yet",
        "limit": "Maximum number of training examples, evenly spaced over the file",
        "select_on": "Split to evaluate on after every epoch; the epoch with the best result is saved",
        "seed": "Random seed (new weights, dropout, order of examples)",
        **FROM_SCRATCH_HELPS,
    }
    required = ("out",)
    python_only = ()

    learning_rate: float = option(1e-4, "Maximum learning rate, after the warm-up", above=0)
    distil: Any = option(
        None,
        "Model to distil from in addition to the labels, e.g. the unpruned model",
        check=check_model("distil"),
        show_default="none",
    )
    fix: str | None = option(
        None,
        "Fixed attention patterns to train with, as HEADS=PATTERN: encoder.*.0-6=raganato (the seven patterns of "
        "Raganato et al., one per head) or 3.2=previous,4.*=first, or a file of such lines",
        check=check_patterns("`fix`"),
        show_default="none",
    )
    label_smoothing: float = option(
        0.0,
        "Label smoothing (0 to 1), for translation only",
        at_least=0,
        below=1,
        panel=ADVANCED,
    )
    checkpoints: int | None = checkpoints_option()
