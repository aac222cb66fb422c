"""Learn which heads to keep: a hard-concrete gate on every head, trained with the weights or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from headscope.config.gate import GateConfig, GateTarget
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.learning.gates import Gates
from headscope.learning.learning_runs import (
    Learning,
    Result,
    StudyWriter,
    by_name,
    describe_trainings,
)
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.saving import write_model
from headscope.model.surgery import prune
from headscope.pruning.compare_fronts import roles_in
from headscope.pruning.pareto_front import (
    UNTIMED,
    change_text,
    on_front,
    speeds_of,
    time_columns,
)
from headscope.pruning.plan import Plan
from headscope.study.run_record import describe_model
from headscope.study.schema.names import GATE, StatisticName
from headscope.study.schema.record import Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.training.finetune import describe_epoch, evaluate_epoch, is_best
from headscope.training.learnable_edit import short_training_note
from headscope.training.loop import Step, Training
from headscope.training.resumable import BEST, Resumable, write_whole

MOMENTS = 100  # steps of the training at which the gates are recorded
PLAN = "plan.json"
SMALLER = "Take a smaller penalty, or `keep=N`"


def gate(
    model: ModelSource,
    config: GateConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = lambda study, folder: None,
) -> Study:
    """Train gates for each target. write: writes figures and page into the study's directory.

    Each target leaves a directory in `run.out` with a plan and, unless the weights were frozen, the trained model that
    the plan is of. A penalty that closes every head is stopped and has no row; its best epoch is kept.
    """
    learning = _GateLearning(model, config, data, reading, run)
    sha256 = describe_model(learning.whole)["sha256"]
    roles = None if config.roles is None else roles_in(Path(config.roles), sha256)
    for target in config.targets:
        learning.gates(learning.whole, target)  # refused before anything is trained
    with learning.train_each(config.targets, learning.train) as (folder, results):
        study = learning.study(results)
        if roles is not None:
            study.tables["gate_roles"] = roles[["stack", "layer", "head", "role"]]
        learning.write(study, folder, write)
    return study


class _AllClosed(HeadscopeError):
    """No head is open any more."""

    def __init__(self, target: GateTarget, step: Step) -> None:
        self.step = step.number
        super().__init__(
            f"all heads are closed at step {step.number} of {step.total}",
            where=f"`penalty={target.name.removeprefix('penalty-')}`",
            fix=SMALLER,
        )


class _GateLearning(Learning[GateConfig]):
    """The trainings of gates."""

    can_reduce_rate = True
    of_targets = ("keep", "penalty", "roles")

    def gates(self, model: AttentionModel, target: GateTarget) -> Gates:
        """New gates for a target."""
        # Frozen weights are not trained after the gates have settled: gates settle with the last step.
        settle = 1.0 if self.config.frozen else self.config.settle
        penalty, keep, rate = target.penalty, target.keep, self.config.gate_rate
        return Gates(model, penalty=penalty, keep=keep, rate=rate, settle=settle)

    def train(self, target: GateTarget, folder: Path) -> Result:
        """Train for one target; writes its plan and its model into the folder."""
        model = self.open_to_train(self.settings.seed)
        gates = self.gates(model, target)
        inputs, frozen = (model, self.task, self.train_on), self.config.frozen
        training = Training(*inputs, self.settings, learned=gates, frozen=frozen)
        run = self.resume_training(training, target, folder)
        try:
            with model.edited(gates.edit()):
                self._train_steps(run, gates, target)
        except _AllClosed as closed:
            self.run.log(f"{target.name}: {closed.what}")
            collapsed = self._keep_collapsed(target, closed, model, gates, folder)
            return {"collapsed": collapsed, **run.told}
        kept = gates.heads(gates.chosen().tolist())
        values = [kept[head] for head in self.whole.heads]
        trace = [moment for moment in run.told["trace"] if moment[0] < training.total]
        run.told["trace"] = [*trace, [training.total, values]]
        row = self._write_plan(target, model, kept, folder)
        metric = f"{self.task.metrics[0]} {row['metric']:.4f}"
        self.run.log(
            f"{target.name}: {row['left']} heads kept, {metric}, change {change_text(row)}"
        )
        note = ""
        if bool(gates.hardly):
            steps = gates.settles_at(training.total)
            note = f"{target.name}: {short_training_note('gates', steps, '`gate_rate`')}"
            self.run.log(f"note: {note}")
        return {"row": row, **run.told, "gates": values, "note": note}

    def _train_steps(self, run: Resumable, gates: Gates, target: GateTarget) -> None:
        trace: list[list[Any]] = run.told.setdefault("trace", [])
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        every = max(1, run.training.total // MOMENTS)
        for step in run.steps():
            self.report_progress(target.name, step.number, step.total)
            if step.number % every == 0 or step.number == 1:
                values = gates.heads([round(value, 4) for value in gates.still().tolist()])
                trace.append([step.number, [values[head] for head in self.whole.heads]])
                _check_open(gates, target, step)
            if step.ends_epoch:
                gates.draw(run.training.progress)
                _check_open(gates, target, step)
                if target.keep is not None:  # without noise all may be closed
                    gates.values = gates.chosen()
                left = sum(value > 0 for value in gates.heads(gates.values.tolist()).values())
                stay = int(sum(gates.heads(gates.chosen().tolist()).values()))
                epoch = evaluate_epoch(run.training.model, self.task, self.select_on, step)
                epochs.append({**epoch, "heads": stay})
                is_open = target.keep is None and stay
                if is_open and is_best([epoch for epoch in epochs if epoch["heads"]]):
                    self._keep_best(run, gates)
                run.save()
                # Logged after saving: an epoch that a user has seen is not trained again.
                self.run.log(f"{target.name}: {describe_epoch(epochs[-1])}, {left} heads open")

    def _keep_best(self, run: Resumable, gates: Gates) -> None:
        """Keep the best epoch, in case all heads close later on."""
        weights = {} if self.config.frozen else run.training.model.model.state_dict()
        epoch = run.told["epochs"][-1]["epoch"]
        write_whole({"epoch": epoch, "gates": gates.chosen(), "model": weights}, run.folder / BEST)

    def _keep_collapsed(
        self,
        target: GateTarget,
        closed: _AllClosed,
        model: AttentionModel,
        gates: Gates,
        folder: Path,
    ) -> Section:
        """Write the best epoch before all heads closed into the folder; a note for the run record."""
        note = {"what": closed.what, "where": str(closed.where), "step": closed.step}
        if not (folder / BEST).exists():
            return note
        best = torch.load(folder / BEST, weights_only=True)
        if not self.config.frozen:
            model.model.load_state_dict(best["model"])
        row = self._write_plan(target, model, gates.heads(best["gates"].tolist()), folder)
        return {**note, "kept_epoch": best["epoch"], "left": row["left"], "metric": row["metric"]}

    def check_results(self, results: Sequence[Result], folder: Path) -> None:
        """Refuse a run in which every penalty was too high; one that is not makes a front."""
        notes = [result["collapsed"] for result in results if "collapsed" in result]
        if len(notes) < len(results):
            return
        kept = [note for note in notes if "kept_epoch" in note]
        fix = SMALLER
        if kept and self.run.out is not None:
            fix = f"Epoch {kept[0]['kept_epoch']}, with {kept[0]['left']} heads, is kept in {self.out}.partial. {fix}"
        else:
            self.delete_trainings(folder)
        raise HeadscopeError(notes[0]["what"], where=notes[0]["where"], fix=fix)

    def _write_plan(
        self, target: GateTarget, model: AttentionModel, kept: Mapping[Head, float], folder: Path
    ) -> Section:
        """Write the plan and, unless weights were frozen, the trained model; returns the row of the pruned model."""
        plan_of = self.whole
        if not self.config.frozen:
            write_model(model, folder)
            # A plan is of the weights as they are loaded, under their final name.
            plan_of = self.reload(folder, reading=model.reading)
            plan_of.name = str(self.out / folder.name)
        removed = HeadSet([head for head, value in kept.items() if not value], among=plan_of.heads)
        cut = prune(plan_of, list(removed)) if removed else plan_of
        row = self._row(target.name, cut)
        # Without times, so that a plan has the same bytes whenever it is made.
        timeless = {name: value for name, value in row.items() if name not in UNTIMED}
        chosen = {"learned": target.name, **self.describe_examples(), "after": {"report": timeless}}
        Plan.of(plan_of, removed, chosen).write(folder / PLAN)
        return {**row, "heads": str(removed)}

    def _row(self, name: str, cut: AttentionModel) -> Section:
        return {
            "aim": name,
            "removed": len(self.whole.heads) - len(cut.heads),
            "left": len(cut.heads),
            "repair": "",
            "parameters": sum(p.numel() for p in cut.model.parameters()),
            **(UNTIMED if cut is self.whole else time_columns(speeds_of(self.whole, cut))),
            **self.judge_changes(cut),
            "is_chosen": False,
            "draw": 0,
        }

    def study(self, results: Sequence[Result]) -> Study:
        """The study of all trainings."""
        heads, count = self.whole.heads, len(self.train_on.items)
        named = by_name(self.config.targets, results)
        rows = [
            Row.without_interval(head, str(StatisticName(GATE, name)), value, count)
            for name, result in named.items()
            if "gates" in result
            for head, value in zip(heads, result["gates"], strict=True)
        ]
        over_time = [
            {"aim": name, "step": step, **asdict(head), "gate": value}
            for name, result in named.items()
            for step, values in result["trace"]
            for head, value in zip(heads, values, strict=True)
        ]
        collapsed = {name: r["collapsed"] for name, r in named.items() if "collapsed" in r}
        learned = {**describe_trainings(named), "collapsed": collapsed}
        searched = {**self.describe_examples(), "metric": self.task.metrics[0], "search": "gates"}
        record = self.record({"gates": self.section(learned), "pruning": searched})
        front = [
            {**self._row("", self.whole), "heads": ""},
            *(result["row"] for result in results if "row" in result),
        ]
        tables = {
            "front": TABLES["front"].frame(front).assign(is_front=on_front(front)),
            "gates": TABLES["gates"].frame(over_time),
        }
        return Study(to_frame(rows), {}, record, tables)


def _check_open(gates: Gates, target: GateTarget, step: Step) -> None:
    """Under a penalty closed gates stay closed. With `keep`, that number is open in the end in any case."""
    if target.keep is None and not gates.still().any():
        raise _AllClosed(target, step)
