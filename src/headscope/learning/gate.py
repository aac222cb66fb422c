"""gate, the verb: learn which heads to keep, by a switch on every head that is trained beside the weights or alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headscope.config.checks import check_rate
from headscope.config.requirements import changed, check_effects
from headscope.config.training import ModelSizes
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.learning.gates import RATE, SETTLE, Gates
from headscope.learning.learning_runs import Learning, Source, Watcher, told_by_aim
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.surgery import prune
from headscope.pruning.compare_fronts import roles_in
from headscope.pruning.pareto_front import UNTIMED, on_front, speeds_of, time_columns
from headscope.pruning.plan import Plan
from headscope.study.run_record import build_record, describe_model
from headscope.study.schema.names import GATE, StatisticName
from headscope.study.schema.record import RunRecord
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame
from headscope.tasks import Task, task_named
from headscope.training.finetune import is_best, measured, told_of
from headscope.training.learnable_edit import said_of_little
from headscope.training.loop import Step, Training
from headscope.training.resumable import BEST, Resumable, write_whole
from headscope.training.settings import Settings

MOMENTS = 100  # of the training at which the gates are written down
PLAN = "plan.json"


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
            return "penalty-" + "-".join(
                f"{stack}-{price:g}" for stack, price in self.penalty.items()
            )
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
        check_rate(self.rate, "`gate_rate`", self.settle)


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
    pooling: str | None = None,
    prompt: str | None = None,
    scratch: ModelSizes | None = None,
    roles: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Study, Path], None] = lambda study, folder: None,
    command: str = "",
    watch: Watcher = lambda name, done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Study:
    """Train gates for each aim; returns the study that is written.

    aims       Aim(keep=20), Aim(penalty=0.01), Aim(penalty={"encoder": 0.02, "cross": 0.01}); each is a run of its own
    select_on  the split that is looked at after every epoch; report_on: the split that is reported on, another one
    limit      only so many training examples
    scratch    begin with new weights instead of the model's: `ModelSizes()`, or in another size ModelSizes(layers=3)
    roles      a study of `headscope analyze` of this model: the figure names what the heads that stay do

    Each aim leaves a directory in OUT with a plan; beside it, unless the weights were frozen, the trained model that
    the plan is of. A penalty that closes every head is stopped and has no row; what is kept of it is its best epoch.
    """
    options = options or GateOptions()
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    given: dict[str, Any] = {
        "from_scratch": scratch is not None,
        "frozen": options.frozen,
        "settle": options.settle,
    }
    given |= {"task": chosen, "data": data, "select_on": select_on, "report_on": report_on}
    given |= {"pooling": pooling, "prompt": prompt, **changed(settings or Settings())}
    check_effects("gate", given)
    source = Source(
        model,
        chosen,
        data,
        (select_on, report_on),
        limit,
        report_limit,
        max_length,
        device,
        revision,
        scratch=scratch,
        pooling=pooling,
        prompt=prompt,
    )
    run = _Gating(source, settings or Settings(learning_rate=5e-5), options)
    known = None if roles is None else roles_in(Path(roles), describe_model(run.whole)["sha256"])
    for aim in aims:
        Gates(run.whole, penalty=aim.penalty, keep=aim.keep)  # refused before anything is trained

    def train(aim: Aim, place: Path) -> dict[str, Any]:
        return run.train(aim, place, watch=watch, say=say)

    with run.each(aims, out, overwrite=overwrite, resume=resume, train=train) as (folder, found):
        study = run.study(aims, found, command)
        if known is not None:
            study.tables["gate_roles"] = known[["stack", "layer", "head", "role"]]
        write_tables(study, folder)
        report(study, folder)
    return study


class _AllClosed(HeadscopeError):
    """No head is open any more."""

    def __init__(self, aim: Aim, step: Step) -> None:
        self.step = step.number
        super().__init__(
            f"all heads are closed at step {step.number} of {step.total}",
            where=f"`penalty={aim.name.removeprefix('penalty-')}`",
            mend="Take a smaller penalty, or `keep=N`",
        )


class _Gating(Learning):
    """The trainings of gates."""

    verb = "gate"
    may_slow = True
    options: GateOptions

    def train(
        self, aim: Aim, place: Path, *, watch: Watcher, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """One training to its end: its plan and its model into this folder; what was found."""
        model = self.loaded(self.settings.seed)
        settle = (
            1.0 if self.options.frozen else self.options.settle
        )  # there are no weights to go on alone
        gates = Gates(
            model, penalty=aim.penalty, keep=aim.keep, rate=self.options.rate, settle=settle
        )
        training = Training(
            model,
            self.task,
            self.train_on,
            self.settings,
            learned=gates,
            frozen=self.options.frozen,
        )
        run = Resumable(training, place, {**self.header, "aim": asdict(aim)}, may_slow=True)
        run.restore(say)
        try:
            with model.edited(gates.edit()):
                self._follow(run, gates, aim, watch, say)
        except _AllClosed as closed:
            say(f"{aim.name}: {closed.what}")
            return {"collapsed": self._collapsed(aim, closed, model, gates, place), **run.told}
        kept = gates.heads(gates.chosen().tolist())
        trace = [moment for moment in run.told["trace"] if moment[0] < training.total]
        run.told["trace"] = [*trace, [training.total, [kept[head] for head in self.whole.heads]]]
        row = self._planned(aim, model, kept, place)
        said = f"{aim.name}: {row['left']} heads kept, {self.task.metrics[0]} {row['metric']:.4f}"
        say(
            f"{said}, change {row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        note = ""
        if bool(gates.hardly):
            note = f"{aim.name}: {said_of_little('gates', gates.settles_at(training.total), '`gate_rate`')}"
            say(f"note: {note}")
        return {
            "row": row,
            **run.told,
            "gates": [kept[head] for head in self.whole.heads],
            "note": note,
        }

    def _follow(
        self, run: Resumable, gates: Gates, aim: Aim, watch: Watcher, say: Callable[[str], None]
    ) -> None:
        trace: list[list[Any]] = run.told.setdefault("trace", [])
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        every = max(1, run.training.total // MOMENTS)
        for step in run.steps():
            watch(aim.name, step.number, step.total)
            if step.number % every == 0 or step.number == 1:
                values = gates.heads([round(value, 4) for value in gates.still().tolist()])
                trace.append([step.number, [values[head] for head in self.whole.heads]])
                _check_open(gates, aim, step)
            if step.ends_epoch:
                gates.draw(run.training.progress)
                _check_open(gates, aim, step)
                if aim.keep is not None:
                    gates.values = (
                        gates.chosen()
                    )  # without noise all may be closed while the number is right
                left = sum(value > 0 for value in gates.heads(gates.values.tolist()).values())
                stay = int(sum(gates.heads(gates.chosen().tolist()).values()))
                epochs.append(
                    {**measured(run.training.model, self.task, self.select_on, step), "heads": stay}
                )
                if aim.keep is None and stay and is_best([one for one in epochs if one["heads"]]):
                    self._keep_best(run, gates)
                run.save()
                say(f"{aim.name}: {told_of(epochs[-1])}, {left} heads open")  # what is said is kept

    def _keep_best(self, run: Resumable, gates: Gates) -> None:
        """What is left should all heads close later on."""
        weights = {} if self.options.frozen else run.training.model.model.state_dict()
        epoch = run.told["epochs"][-1]["epoch"]
        write_whole({"epoch": epoch, "gates": gates.chosen(), "model": weights}, run.folder / BEST)

    def _collapsed(
        self, aim: Aim, closed: _AllClosed, model: AttentionModel, gates: Gates, place: Path
    ) -> dict[str, Any]:
        """What is told of a training in which all heads closed; its best epoch before that into the folder."""
        note: dict[str, Any] = {
            "what": closed.what,
            "where": str(closed.where),
            "step": closed.step,
        }
        if not (place / BEST).exists():
            return note
        best = torch.load(place / BEST, weights_only=True)
        if not self.options.frozen:
            model.model.load_state_dict(best["model"])
        row = self._planned(aim, model, gates.heads(best["gates"].tolist()), place)
        return {**note, "kept_epoch": best["epoch"], "left": row["left"], "metric": row["metric"]}

    def check_found(self, found: Sequence[dict[str, Any]], folder: Path) -> None:
        """A sweep goes on after a penalty that is too high; where all are, there is no front."""
        notes = [one["collapsed"] for one in found if "collapsed" in one]
        if len(notes) < len(found):
            return
        kept = [note for note in notes if "kept_epoch" in note]
        mend = "Take a smaller penalty, or `keep=N`"
        if kept:
            mend = f"Epoch {kept[0]['kept_epoch']}, with {kept[0]['left']} heads, is kept in {self.out}.partial. {mend}"
        else:
            self.forget(folder)
        raise HeadscopeError(notes[0]["what"], where=notes[0]["where"], mend=mend)

    def _planned(
        self, aim: Aim, model: AttentionModel, kept: Mapping[Head, float], place: Path
    ) -> dict[str, Any]:
        """The plan and, unless it is the model itself, what it is of into the folder; the row of the cut model."""
        plan_of = self.whole if self.options.frozen else self._written(model, place)
        removed = HeadSet([head for head, value in kept.items() if not value], among=plan_of.heads)
        cut = prune(plan_of, list(removed)) if removed else plan_of
        row = self._row(aim.name, cut)
        told = {
            name: value for name, value in row.items() if name not in UNTIMED
        }  # the same bytes at another time
        chosen = {"learned": aim.name, **self.judged_as(), "after": {"report": told}}
        Plan.of(plan_of, removed, chosen).write(place / PLAN)
        return {**row, "heads": str(removed)}

    def _written(self, model: AttentionModel, place: Path) -> AttentionModel:
        """The trained model as it will be loaded again, by the name it will have: a plan is of these weights."""
        write_model(model, place)
        found = load(
            place,
            model_class=self.task.model_class,
            device=self.source.device,
            reading=model.reading,
        )
        found.name = str(self.out / place.name)
        return found

    def _row(self, name: str, cut: AttentionModel) -> dict[str, Any]:
        return {
            "aim": name,
            "removed": len(self.whole.heads) - len(cut.heads),
            "left": len(cut.heads),
            "repair": "",
            "parameters": sum(p.numel() for p in cut.model.parameters()),
            **(UNTIMED if cut is self.whole else time_columns(speeds_of(self.whole, cut))),
            **self.judged(cut),
            "is_chosen": False,
            "draw": 0,
        }

    def study(self, aims: Sequence[Aim], found: Sequence[dict[str, Any]], command: str) -> Study:

        nothing = float("nan")
        rows = [
            Row(
                head.stack,
                head.layer,
                head.head,
                str(StatisticName(GATE, aim.name)),
                value,
                nothing,
                nothing,
                len(self.train_on.items),
            )
            for aim, one in zip(aims, found, strict=True)
            for head, value in zip(self.whole.heads, one.get("gates", ()), strict="gates" in one)
        ]
        over_time = [
            {
                "aim": aim.name,
                "step": step,
                "stack": head.stack,
                "layer": head.layer,
                "head": head.head,
                "gate": value,
            }
            for aim, one in zip(aims, found, strict=True)
            for step, values in one["trace"]
            for head, value in zip(self.whole.heads, values, strict=True)
        ]
        sections: RunRecord = {
            "gates": {
                **self.told(),
                "metric": self.task.metrics[0],
                **told_by_aim(aims, found),
                "collapsed": {
                    aim.name: one["collapsed"]
                    for aim, one in zip(aims, found, strict=True)
                    if "collapsed" in one
                },
            },
            "pruning": {**self.judged_as(), "metric": self.task.metrics[0], "search": "gates"},
            "durations": {"gate": round(time.perf_counter() - self.started, 1)},
        }
        record = build_record(self.whole, sections, command=command, seed=self.settings.seed)
        front = [
            {**self._row("", self.whole), "heads": ""},
            *(one["row"] for one in found if "row" in one),
        ]
        tables = {
            "front": TABLES["front"].frame(front).assign(is_front=on_front(front)),
            "gates": TABLES["gates"].frame(over_time),
        }
        return Study(to_frame(rows), {}, record, tables)


def _check_open(gates: Gates, aim: Aim, step: Step) -> None:
    """Under a penalty closed gates stay closed. With a number to keep, so many are open in the end whatever is now."""
    if aim.keep is None and not gates.still().any():
        raise _AllClosed(aim, step)
