"""gate, the verb: learn which heads to keep, by a switch on every head that is trained beside the weights or alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from headscope.data.records import find_split
from headscope.drafts import drafted
from headscope.errors import HeadscopeError
from headscope.heads import HeadSet
from headscope.importances.significance import resamples
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.surgery import prune
from headscope.pruning import speed
from headscope.pruning.front import changes
from headscope.pruning.gates import RATE, SETTLE, Gates
from headscope.pruning.plan import Plan
from headscope.study.directory import write_tables
from headscope.study.finetune import measured, told_of
from headscope.study.journal import remember_run
from headscope.study.record import describe_files, describe_model, versions
from headscope.study.resumable import STATE, Resumable
from headscope.study.study import SCHEMA, Study
from headscope.tables import Row, to_frame
from headscope.tasks import Judged, Task, task_named
from headscope.tasks.base import check_apart
from headscope.tasks.running import evaluate
from headscope.training.loop import Settings, Step, Training

MOMENTS = 100  # of the training at which the gates are written down
PLAN, FOUND, HEADER = "plan.json", "found.json", "header.json"


@dataclass(frozen=True)
class Aim:
    """What one training is after: heads at a price (for all, or for each stack), or a number of heads to keep."""

    penalty: float | Mapping[str, float] | None = None
    keep: int | None = None

    @property
    def name(self) -> str:
        if self.keep is not None:
            return f"keep-{self.keep}"
        if isinstance(self.penalty, Mapping):
            return "penalty-" + "-".join(f"{stack}-{price:g}" for stack, price in self.penalty.items())
        return f"penalty-{self.penalty:g}"


@dataclass(frozen=True)
class GateOptions:
    """How gates are trained.

    frozen     only the gates learn; the weights stay as they are
    rate       the learning rate of the gates
    settle     the share of the steps after which gates are 0 or 1 and the weights go on alone
    """

    frozen: bool = False
    rate: float = RATE
    settle: float = SETTLE

    def __post_init__(self) -> None:
        if not 0 < self.settle <= 1:
            raise HeadscopeError(f"{self.settle} is no share", where="--settle", expected="more than 0, at most 1")
        if not self.rate > 0:
            raise HeadscopeError(f"{self.rate} is no rate", where="--gate-rate", expected="more than 0")


def gate(
    model: str | Path,
    *,
    task: str | Task,
    data: str | Path,
    out: str | Path,
    aims: Sequence[Aim],
    options: GateOptions | None = None,
    settings: Settings | None = None,
    select_on: str = "dev:even",
    report_on: str = "dev:odd",
    report_limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    limit: int | None = None,
    device: str = "auto",
    revision: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    watch: Callable[[Step], None] = lambda step: None,
    say: Callable[[str], None] = lambda line: None,
) -> Study:
    """Train gates for each aim; returns the study that is written.

    aims       Aim(keep=20), Aim(penalty=0.01), Aim(penalty={"encoder": 0.02, "cross": 0.01}); each is a run of its own
    select_on  the split that is looked at after every epoch; report_on: the split that is reported on, another one
    limit      only so many training examples

    Each aim leaves a directory in OUT with a plan; beside it, unless the weights were frozen, the trained model that
    the plan is of.
    """
    options, settings = options or GateOptions(), settings or Settings(learning_rate=5e-5)
    run = _Run(
        task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task,
        data,
        (select_on, report_on),
        model,
        device,
        revision,
        options,
        settings,
        max_length,
    )
    run.read(limit, report_limit)
    if len({aim.name for aim in aims}) < len(aims) or not aims:
        raise HeadscopeError("no aim, or one twice", where="gate", expected="different numbers, one or more")
    for aim in aims:
        Gates(run.whole, penalty=aim.penalty, keep=aim.keep)  # refused before anything is trained
    names = [aim.name for aim in aims]
    with drafted(out, overwrite=overwrite, resume=resume, kept=[HEADER, *names]) as folder:
        remember_run(folder / HEADER, run.header)
        found = []
        for aim in aims:
            place = folder / aim.name
            if not (place / FOUND).exists():
                place.mkdir(exist_ok=True)
                run.train(aim, place, watch=watch, say=say)
            found.append(json.loads((place / FOUND).read_text("utf-8")))
        for name in names:
            (folder / name / FOUND).unlink(missing_ok=True)
        (folder / HEADER).unlink()
        study = run.study(aims, found, command)
        write_tables(study, folder)
        report(study, folder)
    return study


class _Run:
    """What the trainings of all aims share."""

    def __init__(
        self,
        task: Task,
        data: str | Path,
        splits: tuple[str, str],
        model: str | Path,
        device: str,
        revision: str | None,
        options: GateOptions,
        settings: Settings,
        max_length: int | None,
    ) -> None:
        self.task, self.data, self.splits = task, data, splits
        self.model, self.device, self.revision = model, device, revision
        self.options, self.settings, self.max_length = options, settings, max_length
        self.started = time.perf_counter()

    def read(self, limit: int | None, report_limit: int | None) -> None:
        """The examples and the whole model, or a refusal."""
        files = [find_split(self.data, split, task=self.task.name) for split in ("train", *self.splits)]
        if files[0] in files[1:]:
            raise HeadscopeError(
                "there is no train file", where=self.data, expected="a directory with a train file and a dev file"
            )
        items = [
            self.task.items(file, split, limit=most)
            for file, split, most in zip(files, ("train", *self.splits), (limit, None, report_limit), strict=True)
        ]
        check_apart(items[1], items[2], "--report-on")
        self.labels = self.task.labels(items[0])
        self.whole = self._loaded()
        self.task.check(self.whole)
        self.train_on, self.select_on, self.report_on = (
            self.task.prepare(self.whole, one, max_length=self.max_length) for one in items
        )
        self.draws = None if self.task.mean_column is not None else resamples(len(items[2]), 0)
        self.files = describe_files(sorted(set(files)))
        self.header = {
            "model": describe_model(self.whole)["sha256"],
            "task": self.task.name,
            "data": self.files,
            "splits": list(self.splits),
            "limit": limit,
            "report_limit": report_limit,
            "max_length": self.max_length,
            "options": asdict(self.options),
            "settings": asdict(self.settings),
            "versions": versions(),
        }

    def _loaded(self) -> AttentionModel:
        torch.manual_seed(self.settings.seed)
        return load(
            self.model,
            model_class=self.task.model_class,
            labels=self.labels,
            device=self.device,
            revision=self.revision,
        )

    def train(self, aim: Aim, place: Path, *, watch: Callable[[Step], None], say: Callable[[str], None]) -> None:
        """One training to its end; its plan, its model, and what was found, into this folder."""
        model = self._loaded()
        settle = 1.0 if self.options.frozen else self.options.settle  # there are no weights to go on alone
        gates = Gates(model, penalty=aim.penalty, keep=aim.keep, rate=self.options.rate, settle=settle)
        training = Training(model, self.task, self.train_on, self.settings, learned=gates, frozen=self.options.frozen)
        run = Resumable(training, place, {**self.header, "aim": asdict(aim)})
        run.restore()
        with model.edited(gates.edit()):
            self._follow(run, gates, aim, watch, say)
        gates.draw(1.0)
        kept = gates.heads(gates.chosen().tolist())
        trace = [moment for moment in run.told["trace"] if moment[0] < training.total]
        run.told["trace"] = [*trace, [training.total, [kept[head] for head in self.whole.heads]]]
        plan_of = self.whole if self.options.frozen else self._written(model, place)
        removed = HeadSet([head for head, value in kept.items() if not value], among=plan_of.heads)
        cut = prune(plan_of, list(removed)) if removed else plan_of
        row = self._row(aim.name, cut)
        chosen = {
            "learned": aim.name,
            "task": self.task.name,
            "data": self.files,
            "trained_on": len(self.train_on.items),
            "selected_on": {"split": self.splits[0], "examples": len(self.select_on.items)},
            "reported_on": {"split": self.splits[1], "examples": len(self.report_on.items)},
            "after": {"report": row},
        }
        Plan.of(plan_of, removed, chosen).write(place / PLAN)
        said = f"{aim.name}: {len(cut.heads)} heads kept, {self.task.metrics[0]} {row['metric']:.4f}"
        say(f"{said}, change {row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]")
        found = {"row": {**row, "heads": str(removed)}, **run.told, "gates": [kept[head] for head in plan_of.heads]}
        (place / STATE).unlink(missing_ok=True)
        (place / FOUND).write_text(json.dumps(found), "utf-8")

    def _follow(
        self, run: Resumable, gates: Gates, aim: Aim, watch: Callable[[Step], None], say: Callable[[str], None]
    ) -> None:
        trace: list[list[Any]] = run.told.setdefault("trace", [])
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        every = max(1, run.training.total // MOMENTS)
        for step in run.steps():
            watch(step)
            if step.number % every == 0 or step.number == 1:
                values = gates.heads([round(value, 4) for value in gates.still().tolist()])
                trace.append([step.number, [values[head] for head in self.whole.heads]])
                if not any(trace[-1][1]):
                    raise HeadscopeError(
                        f"all heads are closed at step {step.number} of {step.total}",
                        where=f"--penalty {aim.name.removeprefix('penalty-')}",
                        mend="Take a smaller penalty, or --keep N",
                    )
            if step.ends_epoch:
                gates.draw(run.training.progress)
                epochs.append(measured(run.training.model, self.task, self.select_on, step))
                left = sum(value > 0 for value in gates.heads(gates.still().tolist()).values())
                say(f"{aim.name}: {told_of(epochs[-1])}, {left} heads open")
                run.save()

    def _written(self, model: AttentionModel, place: Path) -> AttentionModel:
        """The trained model as it will be loaded again: a plan is of these weights."""
        write_model(model, place)
        return load(place, model_class=self.task.model_class, device=self.device)

    @cached_property
    def before(self) -> Judged:
        """The whole model on the split that is reported on."""
        return evaluate(self.whole, self.task, self.report_on)

    def _row(self, name: str, cut: AttentionModel) -> dict[str, Any]:
        """What was lost on the split that is reported on, as in the front of a search."""
        after = self.before if cut is self.whole else evaluate(cut, self.task, self.report_on)
        chosen_on = evaluate(cut, self.task, self.select_on)
        batch_size, length = speed.TIMED[0], speed.longest(self.whole, speed.TIMED[1])
        both = speed.measure([self.whole, cut], batch_size=batch_size, length=length)
        return {
            "aim": name,
            "removed": len(self.whole.heads) - len(cut.heads),
            "left": len(cut.heads),
            "repair": "",
            "parameters": both[1].parameters,
            "time": 1.0 if cut is self.whole else both[1].ratio,
            "selection_loss": float(chosen_on.losses.mean()),
            "selection_metric": float(self.task.measure(chosen_on.scores)[self.task.metrics[0]]),
            **changes(self.task, self.before, after, self.draws),
            "is_chosen": False,
            "draw": 0,
        }

    def study(self, aims: Sequence[Aim], found: Sequence[dict[str, Any]], command: str) -> Study:
        import pandas as pd

        nothing = float("nan")
        rows = [
            Row(
                head.stack, head.layer, head.head, f"gate-{aim.name}", value, nothing, nothing, len(self.train_on.items)
            )
            for aim, one in zip(aims, found, strict=True)
            for head, value in zip(self.whole.heads, one["gates"], strict=True)
        ]
        over_time = [
            {"aim": aim.name, "step": step, "stack": head.stack, "layer": head.layer, "head": head.head, "gate": value}
            for aim, one in zip(aims, found, strict=True)
            for step, values in one["trace"]
            for head, value in zip(self.whole.heads, values, strict=True)
        ]
        record = {
            "schema": SCHEMA,
            "command": command,
            "versions": versions(),
            "model": describe_model(self.whole),
            "gates": {
                **{name: value for name, value in self.header.items() if name not in ("model", "versions")},
                "metric": self.task.metrics[0],
                "epochs": {aim.name: one["epochs"] for aim, one in zip(aims, found, strict=True)},
            },
            "pruning": {"task": self.task.name, "metric": self.task.metrics[0], "search": "gates"},
            "seed": self.settings.seed,
            "lens": "raw",
            "durations": {"gate": round(time.perf_counter() - self.started, 1)},
        }
        front = pd.DataFrame([{**self._row("", self.whole), "heads": ""}, *(one["row"] for one in found)])
        return Study(to_frame(rows), {}, record, {"front": front, "gates": pd.DataFrame(over_time)})
