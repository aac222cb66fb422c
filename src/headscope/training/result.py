"""The result of a training: the model, and the record that is written as training.json."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.atomic_dir import atomic_directory
from headscope.config.shared import Run
from headscope.model.attention_model import AttentionModel
from headscope.model.saving import write_model
from headscope.study.result import Result
from headscope.study.schema.record import SCHEMA, Section
from headscope.training.checkpoints import FOLDER

if TYPE_CHECKING:
    import pandas as pd

RECORD = "training.json"
MEASURED = ("epochs", "moments")  # keys of the record: what finetune and pretrain measured


@dataclass(frozen=True)
class TrainingResult(Result):
    """A trained model.

    model   the model with the weights that were kept
    record  configuration, data, losses and metrics: the content of training.json
    path    the directory it was written to; None if it was not written
    """

    model: AttentionModel
    record: dict[str, Any] = field(repr=False)
    path: Path | None = None

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Loss and metrics with intervals, by epoch (`epochs`) or by step (`moments`)."""
        import pandas as pd

        return {
            name: pd.DataFrame([_row(measured) for measured in self.record[name]])
            for name in MEASURED
            if name in self.record
        }

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model and its record to a directory, with the checkpoints if there are some."""
        with atomic_directory(out, overwrite=overwrite, record=RECORD) as folder:
            write_trained(self.model, self.record, folder)
            if self.path is not None and (self.path / FOLDER).is_dir():
                shutil.copytree(self.path / FOLDER, folder / FOLDER)
        return Path(out)


def training_record(
    run: Run, header: Section, content: Section, told: Section, started: float
) -> Section:
    """The content of training.json. told: of the resumed training; started: by `time.perf_counter`."""
    return {
        "schema": SCHEMA,
        "command": run.typed,
        **header,
        **content,
        "diverged": told.get("diverged", []),
        "seconds": round(time.perf_counter() - started, 1),
    }


def write_trained(model: AttentionModel, record: dict[str, Any], folder: Path) -> None:
    """Write the files of the model and training.json."""
    write_model(model, folder)
    (folder / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _row(measured: dict[str, Any]) -> dict[str, Any]:
    """One row of a table: every metric with its value, low and high in columns."""
    row = {name: value for name, value in measured.items() if name != "metrics"}
    for name, metric in measured["metrics"].items():
        row |= {name: metric["value"], f"{name}_low": metric["low"], f"{name}_high": metric["high"]}
    return row
