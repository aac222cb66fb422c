"""search, the verb: which heads to cut for a task. Chosen on one split, reported on another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headscope.config.requirements import check_effects
from headscope.config.search import SearchOptions
from headscope.model.attention_model import AttentionModel
from headscope.pruning import searches
from headscope.pruning.pareto_front import Report
from headscope.pruning.scores import scores_by
from headscope.pruning.search_config import ask
from headscope.pruning.search_result import Search, found
from headscope.pruning.subset_evaluator import Memory, Selection, State
from headscope.pruning.target import Pursuit, Target
from headscope.study.journal import Journal
from headscope.tasks import Task, task_named
from headscope.tasks.running import unpruned

Told = Callable[[str], None]


class JournalMemory(Memory):
    """Finished work that outlives the process."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self._known = {unit["key"]: unit["value"] for unit in journal.units}

    def add(self, key: str, value: Any) -> None:
        super().add(key, value)
        self.journal.add({"key": key, "value": value})


def search(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    *,
    task: str | Task,
    data: str | Path,
    target: Target,
    options: SearchOptions | None = None,
    select_on: str = "dev:even",
    report_on: str = "dev:odd",
    report_limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    journal: Callable[[dict[str, Any]], Journal] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Told = lambda line: None,
) -> Search:
    """Find the heads that a task can do without.

    target      Target(heads=20), Target(sparsity=0.3), Target(keep_metric=0.99) or Target(speedup=1.2)
    options     how to search: SearchOptions(how="greedy")
    select_on   the split that is chosen on; report_on: the split that is reported on, another one
    report_limit  only so many examples of it
    """
    started = time.perf_counter()
    options = options or SearchOptions()
    check_effects("prune", options.given())
    asked = ask(
        model,
        task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task,
        data,
        (select_on, report_on),
        target,
        options,
        report_limit=report_limit,
        max_length=max_length,
        batch_size=batch_size,
    )
    examples = len(asked.chosen_on.items)
    say(f"evaluating the unpruned model on {examples} examples")
    memory = Memory() if journal is None else JournalMemory(journal(asked.header()))
    selection = asked.selection(memory)
    say(unpruned(selection.task, selection.intact.metric, examples))
    say(f"search: {options.how}")
    run = Pursuit(selection, target, say, progress)
    report = Report(
        selection, asked.reported_on, repairs=options.repairs, calibration=asked.calibration()
    )
    if report.knows_nothing is not None:
        say(f"note: {report.knows_nothing}")
    paths = [run.followed(path) for path in _paths(selection, options)]
    best = run.chosen(paths[0])
    front = report.front(paths, best, options.sizes, say)
    result = found(asked, report, front, best, time.perf_counter() - started)
    if warning := result.plan.chosen["warning"]:
        say(f"note: {warning}")
    say(result.plan.chosen["advice"])
    return result


def _paths(selection: Selection, options: SearchOptions) -> list[Iterator[State]]:
    """The way through the sets that was asked for; several where it is by chance."""
    if options.how == "beam":
        return [searches.beam(selection, options.width, options.expansion, options.swaps)]
    if options.how == "greedy":
        return [searches.greedy(selection)]
    if options.how == "random":
        return [searches.random(selection, options.seed + draw) for draw in range(options.draws)]
    scores = scores_by(selection, options.by, options.rules)
    if options.how == "iterative":
        return [searches.iterative(selection, scores, options.step)]
    return [searches.rank(selection, scores)]
