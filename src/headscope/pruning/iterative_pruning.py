"""Iterative pruning with training between the steps: score, cut a few, recover, and again (Michel; Prasanna)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headscope.config.search import Mending, SearchOptions
from headscope.data.records import find_split
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.surgery import prune
from headscope.pruning.pareto_front import Report
from headscope.pruning.recovery import Judgement, clear, recovered
from headscope.pruning.scores import scores_by
from headscope.pruning.search_config import Asked, ask
from headscope.pruning.search_result import Search, found
from headscope.pruning.subset_evaluator import Memory, Removed, Selection, State
from headscope.pruning.target import Target
from headscope.study.journal import check_same_run
from headscope.study.run_record import code_of, describe_files

HEADER = "steps.json"
STEPS = tuple(f"step-{number}" for number in range(1, 1000))

Told = Callable[[str], None]


def in_steps(
    model: AttentionModel,
    target: Target,
    folder: Path,
    judgement: Judgement,
    mending: Mending,
    options: SearchOptions,
    *,
    say: Told = lambda line: None,
) -> tuple[AttentionModel, Search]:
    """The model after its last step, and all of them as a search is told.

    Finished steps lie in the folder, so that a run that was stopped goes on.
    """
    started = time.perf_counter()
    asked = ask(
        model,
        judgement.task,
        judgement.data,
        (judgement.learn_on, judgement.report_on),
        target,
        options,
        report_limit=judgement.report_limit,
        max_length=judgement.max_length,
        batch_size=judgement.batch_size,
    )
    selection = asked.selection(Memory())
    wanted = target.most(selection)
    assert wanted is not None
    _check_same(folder, asked, judgement, mending)
    steps = _Steps(asked, selection, folder, judgement, mending)
    report = Report(selection, asked.reported_on, cut=steps.model_of)
    if report.knows_nothing is not None:
        say(f"note: {report.knows_nothing}")
    path = steps.followed(wanted, say)
    front = report.front([path], path[-1], options.sizes, say)
    told = {
        "in_steps": {
            name: getattr(mending, name) for name in ("recover", "teacher", "learning_rate")
        }
    }
    result = found(asked, report, front, path[-1], time.perf_counter() - started, told)
    say(result.plan.chosen["advice"])
    last = steps.model_of(path[-1].removed)
    last.path = None  # its files are gone; it is written anew
    return last, result


class _Steps:
    """The sets of removed heads on the way, each with the directory of the model that was trained without them."""

    def __init__(
        self,
        asked: Asked,
        selection: Selection,
        folder: Path,
        judgement: Judgement,
        mending: Mending,
    ) -> None:
        self.asked, self.selection, self.folder = asked, selection, folder
        self.judgement, self.mending = judgement, mending
        self._places: dict[Removed, Path] = {}
        self._last: tuple[Removed, AttentionModel] = (frozenset(), asked.model)

    def followed(self, wanted: int, say: Told) -> list[State]:
        """From the whole model to the last step."""
        path = [State(frozenset(), self.selection.intact)]
        name = self.asked.task.metrics[0]
        while True:
            removed, outcome = path[-1].removed, path[-1].outcome
            gone = self.selection.size(removed)
            say(f"{gone} removed: loss {outcome.loss:.4f}, {name} {outcome.metric:.4f}")
            heads = self._next(path[-1], wanted - gone) if gone < wanted else []
            if not heads:
                return path
            after = removed | {
                number for number, unit in enumerate(self.selection.units) if unit[0] in heads
            }
            self._trained(removed, after, heads, self.folder / STEPS[len(path) - 1], say)
            path.append(State(after, self.selection.evaluated_as(after, self.model_of(after))))

    def model_of(self, removed: Removed) -> AttentionModel:
        """The model that was trained without these; the last one asked for is kept."""
        if self._last[0] != removed:
            whole = self.asked.model
            now = whole
            if removed:
                now = load(
                    self._places[removed],
                    model_class=self.asked.task.model_class,
                    device=str(whole.device),
                    reading=whole.reading,
                )
                assert now.cut is not None
                history = () if whole.cut is None else whole.cut.history
                now.cut = replace(now.cut, history=history)  # steps are one cut
            self._last = removed, now
        return self._last[1]

    def _trained(
        self, before: Removed, after: Removed, heads: list[Head], place: Path, say: Told
    ) -> None:
        self._places[after] = place
        if not place.is_dir():
            cut = prune(self.model_of(before), heads)
            recovered(
                self.asked.model, cut, self.folder, self.judgement, self.mending, say=say
            ).save(place)
            clear(self.folder)

    def _next(self, state: State, most: int) -> list[Head]:
        """The heads that go in one step: the least important in the model as it is now, not more than so many."""
        options, everyone = self.asked.options, self.selection
        each = max(
            round(options.step * len(self.asked.model.heads)),
            *(len(unit) for unit in everyone.units),
        )
        memory = Memory()
        memory.add("evaluate []", asdict(state.outcome))  # it was evaluated when it was trained
        here = self.asked.selection(memory, self.model_of(state.removed))
        spent = here.spent
        known = scores_by(here, options.by, options.rules)(frozenset())
        everyone.spent += here.spent - spent
        removed: Removed = frozenset()
        for unit in sorted(range(len(here.units)), key=lambda one: (known[one], one)):
            fits = here.size(removed | {unit}) <= min(each, most)
            if fits and unit in here.candidates(removed):
                removed |= {unit}
        return list(here.heads(removed))


def _check_same(folder: Path, asked: Asked, judgement: Judgement, mending: Mending) -> None:
    """Refuse to go on with the steps of another run."""
    header: dict[str, Any] = asked.header() | {
        "code": code_of(
            "model", "data", "tasks", "ablation", "pruning", "training", "statistics", "study"
        ),
        "train": describe_files([find_split(judgement.data, "train", task=judgement.task.name)]),
        "mending": asdict(mending),
    }
    path = folder / HEADER
    if path.exists():
        check_same_run(json.loads(path.read_text("utf-8")), json.loads(json.dumps(header)), path)
    path.write_text(json.dumps(header), "utf-8")
