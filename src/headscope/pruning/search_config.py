"""What a search is asked: a model and its task, two splits of its data, how far to go and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headscope.ablation.evaluate import loaded_for
from headscope.config.search import SearchOptions
from headscope.data.records import find_split
from headscope.heads import written_heads
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import read_heads
from headscope.pruning.subset_evaluator import Memory, Selection
from headscope.pruning.target import Target
from headscope.study.run_record import code_of, describe_files, describe_model, versions
from headscope.study.schema.record import FileRecord, ModelRecord, Section
from headscope.tasks import Prepared, Task
from headscope.tasks.base import check_apart, two_files

CALIBRATION = 256  # examples that a repair learns from


@dataclass(frozen=True)
class Asked:
    """What a search is asked: a model and its task, the examples to choose on and to report on, how far and how.

    splits   the names of the two: chosen on, reported on
    """

    model: AttentionModel
    task: Task
    data: str | Path
    splits: tuple[str, str]
    chosen_on: Prepared
    reported_on: Prepared
    target: Target
    options: SearchOptions
    report_limit: int | None = None
    max_length: int | None = None
    batch_size: int = 32

    @property
    def objective(self) -> str:
        return self.options.objective or self.task.objective

    @cached_property
    def model_now(self) -> ModelRecord:
        return describe_model(self.model)

    @cached_property
    def files(self) -> list[FileRecord]:
        found = two_files(self.data) or sorted(
            {find_split(self.data, split, task=self.task.name) for split in self.splits}
        )
        return describe_files(found)

    def settings(self) -> Section:
        """Every option by name, for the record."""
        return {
            "search": self.options.how,
            **{name: value for name, value in asdict(self.options).items() if name != "how"},
            "objective": self.objective,
            "target": asdict(self.target),
            "columns": dict(self.task.columns),
            "labels": dict(self.task.renamed),
            "report_limit": self.report_limit,
            "max_length": self.max_length,
            "batch_size": self.batch_size,
        }

    def header(self) -> dict[str, Any]:
        """What must be the same for a run that goes on."""
        return {
            **{name: self.model_now[name] for name in ("dtype", "device", "edits", "reading")},
            "model": self.model_now["sha256"],
            "code": code_of("model", "data", "statistics", "tasks", "ablation", "pruning"),
            "task": self.task.name,
            "data": self.files,
            "splits": list(self.splits),
            "options": self.settings(),
            "versions": {name: version for name, version in versions().items() if name != "python"},
        }

    def selection(self, memory: Memory, model: AttentionModel | None = None) -> Selection:
        """The examples to choose on, for the model or for what has become of it."""
        return Selection(
            model or self.model,
            self.task,
            self.chosen_on,
            objective=self.objective,  # type: ignore[arg-type]
            at_least=self.options.at_least,
            among=None
            if self.options.among is None
            else read_heads(self.model, written_heads(self.options.among)),
            max_length=self.max_length,
            batch_size=self.batch_size,
            seed=self.options.seed,
            memory=memory,
        )

    def calibration(self) -> Prepared | None:
        """The examples that repairs learn from, where some are tried."""
        if not self.options.repairs:
            return None
        few = self.task.items(self.data, self.splits[0], limit=CALIBRATION)
        return self.task.prepare(self.model, few, max_length=self.max_length)


def ask(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    task: Task,
    data: str | Path,
    splits: tuple[str, str],
    target: Target,
    options: SearchOptions,
    *,
    report_limit: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
) -> Asked:
    """Read the examples, refuse what is chosen on and reported on at once, then load the model."""
    limits = (options.limit, report_limit)
    items = [
        task.items(data, split, limit=limit) for split, limit in zip(splits, limits, strict=True)
    ]
    check_apart(items[0], items[1], "`report_on`")
    loaded = loaded_for(model, task)
    loaded.canary()
    chosen_on, reported_on = (task.prepare(loaded, one, max_length=max_length) for one in items)
    return Asked(
        loaded,
        task,
        data,
        splits,
        chosen_on,
        reported_on,
        target,
        options,
        report_limit,
        max_length,
        batch_size,
    )
