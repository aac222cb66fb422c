"""Learn which heads to keep: a hard-concrete gate on every head, trained together with the weights or alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch

from headscope.config.gate import GateConfig, GateTarget
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.learning.gates import Gates
from headscope.learning.learning_runs import LearningRuns, StudyWriter, write_nothing
from headscope.learning.run_result import (
    Collapse,
    GateRow,
    RunResult,
    RunResults,
    describe_trainings,
)
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.pruning_record import PruningRecord
from headscope.model.saving import write_model
from headscope.model.surgery import prune
from headscope.pruning.compare_fronts import roles_in
from headscope.pruning.pareto_front import UNTIMED, change_text, on_front, speeds_of, time_columns
from headscope.pruning.plan import Plan
from headscope.study.schema.names import GATE, StatisticName
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from headscope.training.finetune import evaluate_epoch, is_best
from headscope.training.learnable_edit import short_training_note
from headscope.training.loop import Step
from headscope.training.resumable import BEST, Resumable, save_atomically

MOMENTS = 100  # approximate number of steps at which the gates are recorded
PLAN = "plan.json"
SMALLER = "Take a smaller penalty, or `keep=N`"


def gate(
    model: ModelSource,
    config: GateConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
    write: StudyWriter = write_nothing,
) -> Study:
    """Train gates for each target.

    Each target has a directory in `run.out`. It holds a plan and, unless the weights were frozen, the trained model
    that the plan is for. If a penalty closes every head, its training is stopped and has no row; the plan and the
    model of its best epoch are kept.
    """
    return _GateRuns(model, config, data, reading, run).make_study(config.targets, write)


class _AllClosed(HeadscopeError):
    """A penalty has closed all heads."""

    def __init__(self, target: GateTarget, step: Step) -> None:
        self.step = step.number
        super().__init__(
            f"all heads are closed at step {step.number} of {step.total}",
            where=f"`penalty={target.name.removeprefix('penalty-')}`",
            fix=SMALLER,
        )


class _GateRuns(LearningRuns[GateConfig]):
    """The trainings of gates."""

    can_reduce_rate = True
    options_of_targets = ("keep", "penalty", "roles")

    def prepare(self) -> None:
        path, sha256 = self.config.roles, self.header["model"]
        self.roles = None if path is None else roles_in(Path(path), sha256)
        for target in self.config.targets:
            self.gates(self.whole, target)  # raises errors before anything is trained

    def gates(self, model: AttentionModel, target: GateTarget) -> Gates:
        """New gates for a target."""
        # If weights are frozen, nothing is left to train after the gates have settled. So they settle at the last step.
        settle = 1.0 if self.config.freeze_weights else self.config.settle
        penalty, keep, rate = target.penalty, target.keep, self.config.gate_rate
        return Gates(model, penalty=penalty, keep=keep, rate=rate, settle=settle)

    def train(self, target: GateTarget, folder: Path) -> RunResult:
        """Train for one target; writes its plan and its model into the folder."""
        model = self.open_to_train(self.settings.seed)
        gates = self.gates(model, target)
        identity, frozen = {"target": asdict(target)}, self.config.freeze_weights
        run = self.start_training(model, folder, identity, learned=gates, frozen=frozen)
        total, history = run.training.total, run.history
        try:
            with model.edited(gates.edit()):
                self._train_steps(run, gates, target)
        except _AllClosed as error:
            self.run.log(f"{target.name}: {error.what}")
            return {"history": history, "collapsed": self._restore_best(target, error, run, gates)}
        values = gates.by_head(gates.binarize().tolist())
        by_head = [values[head] for head in self.whole.heads]
        trace = [moment for moment in history["trace"] if moment[0] < total]
        history["trace"] = [*trace, (total, by_head)]
        row = self._write_plan(target, model, values, folder)
        metric = f"{self.task.metrics[0]} {row['metric']:.4f}"
        self.run.log(
            f"{target.name}: {row['left']} heads kept, {metric}, change {change_text(row)}"
        )
        note = ""
        if bool(gates.undertrained):
            steps = gates.settling_step(total)
            note = f"{target.name}: {short_training_note('gates', steps, '`gate_rate`')}"
            self.run.log(f"note: {note}")
        return {"history": history, "row": row, "gates": by_head, "note": note}

    def _train_steps(self, run: Resumable, gates: Gates, target: GateTarget) -> None:
        """Train to the end; records the gates at some steps, and evaluates the model after every epoch."""
        trace = run.history.setdefault("trace", [])
        epochs = run.history.setdefault("epochs", [])
        every = max(1, run.training.total // MOMENTS)
        for step in run.steps():
            self.report_progress(target.name, step.number, step.total)
            if step.number % every == 0 or step.number == 1:
                values = gates.by_head(
                    [round(value, 4) for value in gates.without_noise().tolist()]
                )
                trace.append((step.number, [values[head] for head in self.whole.heads]))
                _check_open(gates, target, step)
            if step.ends_epoch:
                gates.draw(run.training.progress)
                _check_open(gates, target, step)
                # With `keep`, the open share is right with noise; without noise all gates may be closed. So the model
                # is evaluated with the binary gates.
                if target.keep is not None:
                    gates.values = gates.binarize()
                open_heads = sum(
                    value > 0 for value in gates.by_head(gates.values.tolist()).values()
                )
                heads = int(sum(gates.by_head(gates.binarize().tolist()).values()))
                epoch = evaluate_epoch(run.training.model, self.task, self.select_on, step)
                epochs.append({**epoch, "heads": heads})
                has_heads = target.keep is None and heads > 0
                if has_heads and is_best([epoch for epoch in epochs if epoch["heads"]]):
                    self._save_best(run, gates)
                run.save()
                self.log_epoch(target.name, epochs[-1], f"{open_heads} heads open")

    def _save_best(self, run: Resumable, gates: Gates) -> None:
        """Save the best epoch, in case all heads close later."""
        weights = {} if self.config.freeze_weights else run.training.model.model.state_dict()
        epoch = run.history["epochs"][-1]["epoch"]
        best = {"epoch": epoch, "gates": gates.binarize(), "model": weights}
        save_atomically(best, run.folder / BEST)

    def _restore_best(
        self, target: GateTarget, error: _AllClosed, run: Resumable, gates: Gates
    ) -> Collapse:
        """Write the plan and the model of the best epoch before all heads closed; returns a note for the run record."""
        note: Collapse = {"what": error.what, "where": str(error.where), "step": error.step}
        if not (run.folder / BEST).exists():
            return note
        best, model = torch.load(run.folder / BEST, weights_only=True), run.training.model
        if not self.config.freeze_weights:
            model.model.load_state_dict(best["model"])
        row = self._write_plan(target, model, gates.by_head(best["gates"].tolist()), run.folder)
        return {**note, "kept_epoch": best["epoch"], "left": row["left"], "metric": row["metric"]}

    def check_results(self, results: RunResults, folder: Path) -> None:
        """Raise an error if every penalty closed all heads."""
        notes = [result["collapsed"] for result in results.values() if "collapsed" in result]
        if len(notes) < len(results):
            return
        restored = [note for note in notes if "kept_epoch" in note]
        fix = SMALLER
        if restored and self.run.out is not None:
            epoch, heads = restored[0]["kept_epoch"], restored[0]["left"]
            fix = f"Epoch {epoch}, with {heads} heads, is kept in {self.out}.partial. {fix}"
        else:
            self.delete_trainings(folder)
        raise HeadscopeError(notes[0]["what"], where=notes[0]["where"], fix=fix)

    def _write_plan(
        self, target: GateTarget, model: AttentionModel, values: Mapping[Head, float], folder: Path
    ) -> GateRow:
        """Write the plan and, unless weights were frozen, the trained model; returns the row of the pruned model."""
        plan_of = self.whole
        if not self.config.freeze_weights:
            write_model(model, folder)
            # The plan holds the digest of the weights and the name of the model, so load the written files for it, and
            # name the model after its final directory.
            plan_of = self.reload(folder, model.reading)
            plan_of.name = str(self.out / folder.name)
        removed = HeadSet(
            [head for head, value in values.items() if not value], among=plan_of.heads
        )
        cut = prune(plan_of, list(removed)) if removed else plan_of
        row = self._row(target.name, cut, str(removed))
        # Without measured times, so that equal runs write the same bytes.
        left_out = (*UNTIMED, "heads", "is_front")
        timeless = {name: value for name, value in row.items() if name not in left_out}
        chosen: PruningRecord = {
            "learned": target.name,
            **self.describe_examples(),
            "after": {"report": timeless},
        }
        Plan.of(plan_of, removed, chosen).write(folder / PLAN)
        return row

    def _row(self, name: str, cut: AttentionModel, removed: str = "") -> GateRow:
        """A row of the table `front`. removed: the removed heads, as text."""
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
            "heads": removed,
            "is_front": False,  # set when all rows are known
        }

    def study(self, results: RunResults, folder: Path) -> Study:
        heads, count = self.whole.heads, len(self.train_on.items)
        rows = [
            Row.without_interval(head, str(StatisticName(GATE, name)), value, count)
            for name, result in results.items()
            if "gates" in result
            for head, value in zip(heads, result["gates"], strict=True)
        ]
        trace = [
            {"aim": name, "step": step, **asdict(head), "gate": value}
            for name, result in results.items()
            for step, values in result["history"]["trace"]
            for head, value in zip(heads, values, strict=True)
        ]
        collapsed = {name: r["collapsed"] for name, r in results.items() if "collapsed" in r}
        learned = {**describe_trainings(results), "collapsed": collapsed}
        searched = {**self.describe_examples(), "metric": self.task.metrics[0], "search": "gates"}
        record = self.record({"gates": self.section(learned), "pruning": searched})
        front = [self._row("", self.whole)]
        front += [cast("GateRow", result["row"]) for result in results.values() if "row" in result]
        tables = {
            "front": TABLES["front"].frame(front).assign(is_front=on_front(front)),
            "gates": TABLES["gates"].frame(trace),
        }
        if self.roles is not None:
            tables["gate_roles"] = self.roles[["stack", "layer", "head", "role"]]
        return Study(to_frame(rows), {}, record, tables)


def _check_open(gates: Gates, target: GateTarget, step: Step) -> None:
    """Raise an error if a penalty has closed all gates, since they stay closed. With `keep` they would open again."""
    if target.keep is None and not gates.without_noise().any():
        raise _AllClosed(target, step)
