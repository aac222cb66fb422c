"""Base class for the results of `prune` and `fix`: the smaller model and its measurements, written to one directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.atomic_dir import atomic_directory
from headscope.model.attention_model import AttentionModel
from headscope.model.manifest import NAME as MANIFEST
from headscope.model.pruning_record import PruningRecord
from headscope.model.saving import write_model
from headscope.study.result import Result
from headscope.study.study import Study
from headscope.study.study_dir import write_tables

if TYPE_CHECKING:
    import pandas as pd

# writes the figures and the page of a study into its directory
WritePage = Callable[[Study, Path], None]


def no_page(study: Study, folder: Path) -> None:
    """Write neither figures nor a page."""


@dataclass
class ModelResult(Result):
    """A smaller model and its measurements.

    model   the smaller model
    record  how it was made, its metrics and its speed: the entry `chosen` of its cut.json
    study   the study of the search; None if the heads were named
    form    how the model is written: small, plain or onnx
    """

    model: AttentionModel
    record: PruningRecord = field(repr=False)
    study: Study | None
    form: str = "small"
    write_page: WritePage = field(default=no_page, repr=False, kw_only=True)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the study by name."""
        return {} if self.study is None else self.study.tables

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model, and the study with its page, to a directory that is complete or absent."""
        with atomic_directory(out, overwrite=overwrite, record=MANIFEST) as folder:
            self.write_into(folder)
        return Path(out)

    def write_into(self, folder: Path) -> None:
        """Write everything into a folder."""
        write_model(self.model, folder, form=self.form, chosen=self.record)
        self.write_plan(folder)
        if self.study is not None:
            (folder / "study").mkdir()
            write_tables(self.study, folder / "study")
            self.write_page(self.study, folder / "study")

    def write_plan(self, folder: Path) -> None:
        """Write a file with the changed heads, for the option `plan` or `patterns` of another run."""
