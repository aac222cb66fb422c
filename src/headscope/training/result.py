"""The result of a training: the model, and the record that is written as training.json."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from headscope.atomic_dir import atomic_directory
from headscope.config.shared import Run
from headscope.model.attention_model import AttentionModel
from headscope.model.saving import write_model
from headscope.study.result import Result
from headscope.study.schema.record import SCHEMA, FileRecord, ModelRecord, Section
from headscope.training.checkpoints import FOLDER

if TYPE_CHECKING:
    import pandas as pd

RECORD = "training.json"
Metrics = dict[str, dict[str, float | None]]  # value, low and high of the loss and each metric


class EpochRecord(TypedDict):
    """An epoch and the performance after it, on the selection split."""

    epoch: int  # from 1
    train_loss: float
    dev_loss: float
    metric: str
    value: float | None  # of the metric; None if it is undefined
    metrics: Metrics
    heads: NotRequired[int]  # heads that gates keep


class MomentRecord(TypedDict):
    """A step of pre-training and the performance after it, on the held-out texts."""

    step: int
    train_loss: float | None
    loss: float | None
    accuracy: float | None
    metrics: Metrics


class Divergence(TypedDict):
    """A loss that became NaN with this learning rate."""

    what: str
    learning_rate: float
    resumed_from: NotRequired[int]  # step


class History(TypedDict, total=False):
    """Losses and metrics recorded during a training. It is saved with every state, as JSON."""

    epochs: list[EpochRecord]
    moments: list[MomentRecord]
    trace: list[tuple[int, list[float]]]  # step, gate of each head
    diverged: list[Divergence]


class TrainingRecord(TypedDict, total=False):
    """The content of training.json."""

    schema: int
    command: str | None
    config: Section
    model: ModelRecord
    task: str
    data: list[FileRecord] | Section
    columns: Mapping[str, str]
    labels: Mapping[str, str]
    teacher: str
    versions: dict[str, str]
    # finetune
    epochs: list[EpochRecord]
    best: EpochRecord
    # pretrain
    sequences: dict[str, Section]
    held_out_share: float
    baseline: dict[str, float]
    moments: list[MomentRecord]
    # both
    diverged: list[Divergence]
    seconds: float


@dataclass(frozen=True)
class TrainingResult(Result):
    """A trained model.

    model   the model with the weights of the best epoch, or of the last step
    record  configuration, data, losses and metrics: the content of training.json
    path    the directory it was written to; None if it was not written
    """

    model: AttentionModel
    record: TrainingRecord = field(repr=False)
    path: Path | None = None

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Loss and metrics with intervals, by epoch (`epochs`) or by step (`moments`)."""
        import pandas as pd

        evaluations = {"epochs": self.record.get("epochs"), "moments": self.record.get("moments")}
        return {
            name: pd.DataFrame([_row(evaluation) for evaluation in listed])
            for name, listed in evaluations.items()
            if listed is not None
        }

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model, its record and its checkpoints, if any, to a directory."""
        with atomic_directory(out, overwrite=overwrite, record=RECORD) as folder:
            write_training(self.model, self.record, folder)
            if self.path is not None and (self.path / FOLDER).is_dir():
                shutil.copytree(self.path / FOLDER, folder / FOLDER)
        return Path(out)


def training_record(
    run: Run, header: TrainingRecord, content: TrainingRecord, history: History, started: float
) -> TrainingRecord:
    """The content of training.json. started: value of `time.perf_counter` at the start."""
    record = {
        "schema": SCHEMA,
        "command": run.typed,
        **header,
        **content,
        "diverged": history.get("diverged", []),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return cast("TrainingRecord", record)


def write_training(model: AttentionModel, record: TrainingRecord, folder: Path) -> None:
    """Write the files of the model and training.json."""
    write_model(model, folder)
    (folder / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _row(evaluation: EpochRecord | MomentRecord) -> dict[str, Any]:
    """One row of a table: every metric with its value, low and high in columns."""
    row = {name: value for name, value in evaluation.items() if name != "metrics"}
    for name, metric in evaluation["metrics"].items():
        row |= {name: metric["value"], f"{name}_low": metric["low"], f"{name}_high": metric["high"]}
    return row
