"""Inputs of a search: a loaded model, its task, and the examples of the selection and the report split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headscope.config.option import options_of, recorded
from headscope.config.search import SearchConfig, splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import read_heads
from headscope.pruning.subset_evaluator import Memory, Selection
from headscope.study.run_record import code_of, describe_files, describe_model, versions
from headscope.study.schema.record import FileRecord, ModelRecord
from headscope.tasks import Prepared, Task, task_of
from headscope.tasks.base import check_apart, two_files

CALIBRATION = 256  # examples that a repair is fitted to


@dataclass(frozen=True)
class SearchInputs:
    """The inputs of a search. selection_set, report_set: examples to select on, and to report on."""

    model: AttentionModel
    task: Task
    config: SearchConfig
    data: TaskData
    reading: Reading
    run: Run
    selection_set: Prepared
    report_set: Prepared

    @property
    def objective(self) -> str:
        return self.config.objective or self.task.objective

    @cached_property
    def model_record(self) -> ModelRecord:
        return describe_model(self.model)

    @cached_property
    def files(self) -> list[FileRecord]:
        """The data files, with their hashes."""
        files = two_files(self.data.data) or sorted(
            {
                find_split(self.data.data, split, task=self.task.name)
                for split in splits_of(self.data)
            }
        )
        return describe_files(files)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the search by name; not those of what is done after it (repair, training, form)."""
        values = recorded(self.config, self.data, self.reading, self.run)
        later = set(options_of(type(self.config))) - set(options_of(SearchConfig))
        return {name: value for name, value in values.items() if name not in later}

    def header(self) -> dict[str, Any]:
        """What must be equal for a run to be resumed."""
        return {
            **{name: self.model_record[name] for name in ("dtype", "device", "edits", "reading")},
            "model": self.model_record["sha256"],
            "code": code_of("model", "data", "statistics", "tasks", "ablation", "pruning"),
            "config": self.options,
            "data": self.files,
            "versions": {name: version for name, version in versions().items() if name != "python"},
        }

    def selection(self, memory: Memory, model: AttentionModel | None = None) -> Selection:
        """The evaluator of sets of heads, for the model or for what has become of it."""
        among = self.config.among
        return Selection(
            model or self.model,
            self.task,
            self.selection_set,
            objective=self.objective,  # type: ignore[arg-type]
            at_least=self.config.at_least,
            among=None if among is None else read_heads(self.model, among),
            max_length=self.data.max_length,
            batch_size=self.config.batch_size,
            seed=self.run.seed,
            memory=memory,
        )

    def calibration_set(self) -> Prepared | None:
        """The examples that repairs are fitted to, if repairs are tried."""
        return calibration_set(self.model, self.data) if self.config.try_repairs else None


def calibration_set(model: AttentionModel, data: TaskData) -> Prepared:
    """A few examples of the selection split, for repairs."""
    task = task_of(data)
    items = task.items(data.data, splits_of(data)[0], limit=CALIBRATION)
    return task.prepare(model, items, max_length=data.max_length)


def read_inputs(
    model: AttentionModel | str | Path,
    config: SearchConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
) -> SearchInputs:
    """Read the examples of both splits, refuse splits that overlap, then load the model."""
    task = task_of(data)
    select_on, report_on = splits_of(data)
    to_select = task.items(data.data, select_on, limit=data.limit)
    to_report = task.items(data.data, report_on, limit=data.report_limit)
    check_apart(to_select, to_report, "`report_on`")
    loaded = (
        model
        if isinstance(model, AttentionModel)
        else open_model(model, reading, run, model_class=task.model_class)
    )
    task.check(loaded)
    loaded.canary()
    selection_set, report_set = (
        task.prepare(loaded, items, max_length=data.max_length) for items in (to_select, to_report)
    )
    return SearchInputs(loaded, task, config, data, reading, run, selection_set, report_set)
