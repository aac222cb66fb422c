"""Inputs of a search: a loaded model, its task, and the examples of the selection split and the report split."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headscope.config.option import options_of, record_options
from headscope.config.search import SearchConfig, splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.pruning_record import PruningRecord
from headscope.model.surgery import read_heads
from headscope.pruning.subset_evaluator import EvaluationOptions, Memory, Objective, SubsetEvaluator
from headscope.study.run_record import describe_files, describe_model, resume_header
from headscope.study.schema.record import FileRecord, ModelRecord, Section
from headscope.tasks import Item, Prepared, Task, task_of
from headscope.tasks.items import check_apart, two_files

# packages whose code determines the results
CODE = ("model", "data", "statistics", "tasks", "ablation", "pruning")
CALIBRATION = 256  # number of examples to which a repair is fitted


@dataclass(frozen=True)
class SearchInputs:
    """The inputs of a search. selection_set, report_set: the examples of the two splits."""

    model: AttentionModel
    task: Task
    config: SearchConfig
    data: TaskData
    reading: Reading
    run: Run
    selection_set: Prepared
    report_set: Prepared

    @property
    def objective(self) -> Objective:
        return self.config.objective or self.task.objective  # type: ignore[return-value]

    @cached_property
    def model_record(self) -> ModelRecord:
        return describe_model(self.model)

    @cached_property
    def files(self) -> list[FileRecord]:
        """The data files, with their hashes."""
        data, task = self.data.data, self.task.name
        pair = two_files(data)
        splits = () if pair else {find_split(data, s, task=task) for s in splits_of(self.data)}
        return describe_files(pair or sorted(splits))

    @property
    def options(self) -> Section:
        """The options of the search by name, without options for later work: repair, training and form."""
        values = record_options(self.config, self.data, self.reading, self.run)
        later = set(options_of(type(self.config))) - set(options_of(SearchConfig))
        return {name: value for name, value in values.items() if name not in later}

    def header(self) -> dict[str, object]:
        """Header of the journal: a run can be resumed only if its header is equal."""
        return resume_header(self.model_record, CODE, config=self.options, data=self.files)

    def selection(self, memory: Memory, model: AttentionModel | None = None) -> SubsetEvaluator:
        """The evaluator of sets of heads on the selection split.

        model  a pruned and trained version of the model, which is evaluated instead of it
        """
        config, among = self.config, self.config.candidates
        options = EvaluationOptions(
            self.objective,
            config.min_heads_per_layer,
            None if among is None else read_heads(self.model, among),
            self.data.max_length,
            config.batch_size,
            self.run.seed,
        )
        return SubsetEvaluator(model or self.model, self.task, self.selection_set, options, memory)


def calibration_set(model: AttentionModel, data: TaskData) -> Prepared:
    """The calibration set of repairs: a few examples of the selection split."""
    task = task_of(data)
    items = task.items(data.data, splits_of(data)[0], limit=CALIBRATION)
    return task.prepare(model, items, max_length=data.max_length)


def describe_splits(data: TaskData, selection_set: Prepared, report_set: Prepared) -> PruningRecord:
    """Splits and numbers of examples, for records."""
    select_on, report_on = splits_of(data)
    return {
        "selected_on": {"split": select_on, "examples": len(selection_set.items)},
        "reported_on": {"split": report_on, "examples": len(report_set.items)},
    }


def read_both_splits(data: TaskData) -> tuple[list[Item], list[Item]]:
    """The examples of the selection split and the report split; splits that overlap are refused."""
    task = task_of(data)
    select_on, report_on = splits_of(data)
    to_select = task.items(data.data, select_on, limit=data.limit)
    to_report = task.items(data.data, report_on, limit=data.report_limit)
    check_apart(to_select, to_report, "`report_on`")
    return to_select, to_report


def read_inputs(
    model: ModelSource, config: SearchConfig, data: TaskData, reading: Reading, run: Run
) -> SearchInputs:
    """Read the examples of both splits, then load the model."""
    task, splits = task_of(data), read_both_splits(data)
    if not isinstance(model, AttentionModel):
        model = open_model(model, reading, run, model_class=task.model_class)
    task.check(model)
    model.self_check()
    selection_set, report_set = (
        task.prepare(model, items, max_length=data.max_length) for items in splits
    )
    return SearchInputs(model, task, config, data, reading, run, selection_set, report_set)
