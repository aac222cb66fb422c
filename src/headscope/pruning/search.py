"""Search for the heads that a task can do without: selected on one split, reported on another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from headscope.config.search import SearchConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.load import ModelSource
from headscope.pruning import searches
from headscope.pruning.pareto_front import Report
from headscope.pruning.search_inputs import calibration_set, read_inputs
from headscope.pruning.search_result import SearchResult, make_result
from headscope.pruning.subset_evaluator import Memory
from headscope.pruning.target import StoppingRule
from headscope.study.journal import Journal
from headscope.tasks.inference import describe_unpruned

OpenJournal = Callable[[Mapping[str, object]], Journal]  # opens the journal for the header of a run


class JournalMemory(Memory):
    """Results that are also written to a journal, so that a resumed run need not compute them again."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self._values = {unit["key"]: unit["value"] for unit in journal.units}

    def add(self, key: str, value: Any) -> None:
        super().add(key, value)
        self.journal.add({"key": key, "value": value})


def search(
    model: ModelSource,
    config: SearchConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    open_journal: OpenJournal | None = None,
) -> SearchResult:
    """Find the heads that a task can do without.

    open_journal  opens a journal of finished work; None: the run cannot be resumed
    """
    started = time.perf_counter()
    inputs = read_inputs(model, config, data, reading, run)
    examples = len(inputs.selection_set.items)
    run.log(f"evaluating the unpruned model on {examples} examples")
    memory = Memory() if open_journal is None else JournalMemory(open_journal(inputs.header()))
    selection = inputs.selection(memory)
    run.log(describe_unpruned(selection.task, selection.intact.metric, examples))
    run.log(f"search: {config.search}")
    rule = StoppingRule(selection, config, run)
    calibration = calibration_set(inputs.model, data) if config.try_repairs else None
    report = Report(
        selection, inputs.report_set, repairs=config.try_repairs, calibration=calibration
    )
    if report.chance_note is not None:
        run.log(f"note: {report.chance_note}")
    paths = [rule.follow(path) for path in searches.paths(selection, config, run.seed)]
    best = rule.choose(paths[0])
    front = report.front(paths, best, config.front_sizes, run.log)
    result = make_result(inputs, report, front, best, time.perf_counter() - started)
    if warning := result.plan.chosen["warning"]:
        run.log(f"note: {warning}")
    run.log(result.plan.chosen["advice"])
    return result
