"""prune, carried out: the heads of a plan are cut, what can be mended is, and what it did is measured and written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headscope.errors import HeadscopeError
from headscope.importances.significance import delta_of_metric, metrics_of, resamples
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.surgery import prune
from headscope.pruning import speed
from headscope.pruning.plan import Plan
from headscope.pruning.repair import repaired
from headscope.study.finetune import finetune
from headscope.study.study import Study
from headscope.tasks import Judged, Task
from headscope.tasks.running import evaluate
from headscope.training.loop import Settings

CALIBRATION = 256  # examples that a repair learns from
KEPT = ("cut", "recovered.partial")  # of a recovery that was stopped


@dataclass(frozen=True)
class Judgement:
    """A task, its data, and the two splits: what is learned from the one is reported on the other."""

    task: Task
    data: str | Path
    learn_on: str = "dev:even"
    report_on: str = "dev:odd"
    max_length: int | None = None
    batch_size: int = 32


@dataclass(frozen=True)
class Mending:
    """repairs: fold, refit. recover: epochs of training on the train split, with the whole model as teacher or not."""

    repairs: tuple[str, ...] = ()
    recover: int = 0
    teacher: bool = False
    learning_rate: float = 5e-5
    seed: int = 0


def carry_out(
    model: AttentionModel,
    plan: Plan,
    folder: Path,
    *,
    form: str = "small",
    judgement: Judgement | None = None,
    mending: Mending | None = None,
    study: Study | None = None,
    already: AttentionModel | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Cut a plan's heads and write the model into a folder; returns what the manifest says of it.

    judgement  measure what it did on this task; needed for repairs and recovery
    study      what the search found, written beside the model
    already    the model as it was cut and trained in steps
    """
    mending = mending or Mending()
    if judgement is None and (mending.repairs or mending.recover):
        raise HeadscopeError("there is no task to learn from", where="--repair", mend="Add --task NAME and --data PATH")
    cut = prune(model, list(plan.heads)) if already is None else already
    stages: dict[str, Any] = {}
    measured = None if judgement is None else _Measured(model, judgement)
    if measured is not None:
        measured.take("cut", cut, stages, say)
    for repair in mending.repairs:
        assert judgement is not None
        items = judgement.task.items(judgement.data, judgement.learn_on, limit=CALIBRATION)
        examples = judgement.task.prepare(cut, items, max_length=judgement.max_length)
        repaired(model, cut, repair, judgement.task, examples, batch_size=judgement.batch_size, say=say)
        assert measured is not None
        measured.take(repair, cut, stages, say)
    if mending.recover:
        assert judgement is not None
        assert measured is not None
        cut = recovered(model, cut, folder, judgement, mending, say=say)
        measured.take("recovered", cut, stages, say)
    chosen = _told(plan, mending, measured, stages)
    length = speed.longest(model, 64)
    chosen["speed"] = [asdict(one) for one in speed.measure([model, cut], batch_size=8, length=length)]
    write_model(cut, folder, form=form, chosen=chosen)
    plan.write(folder / "plan.json")
    if study is not None:
        from headscope.study.directory import write_tables

        (folder / "study").mkdir()
        study.record["command"] = command
        write_tables(study, folder / "study")
    return chosen


class _Measured:
    """The intact model on the split that nothing is learned from, and stages of the cut one beside it."""

    def __init__(self, model: AttentionModel, judgement: Judgement) -> None:
        self.judgement, task = judgement, judgement.task
        items = task.items(judgement.data, judgement.report_on)
        self.prepared = task.prepare(model, items, max_length=judgement.max_length)
        self.draws = None if task.mean_column is not None else resamples(len(self.prepared.items), 0)
        self.before = self._judged(model)
        self.metrics = metrics_of(task, self.before)

    def _judged(self, model: AttentionModel) -> Judged:
        return evaluate(model, self.judgement.task, self.prepared, batch_size=self.judgement.batch_size)

    def take(self, stage: str, model: AttentionModel, stages: dict[str, Any], say: Callable[[str], None]) -> None:
        task, name = self.judgement.task, self.judgement.task.metrics[0]
        judged = self._judged(model)
        change = delta_of_metric(task, self.before.scores, judged.scores, self.draws)
        metrics = metrics_of(task, judged)
        stages[stage] = {"metrics": metrics, "change": asdict(change)}
        say(
            f"{stage}: {name} {metrics[name]['value']:.4f}, change {change.value:+.4f} "
            f"[{change.low:+.4f}, {change.high:+.4f}] on {self.judgement.report_on}"
        )


def recovered(
    model: AttentionModel,
    cut: AttentionModel,
    folder: Path,
    judgement: Judgement,
    mending: Mending,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> AttentionModel:
    """Trained on the train split; goes on where a killed run was, if that was of the same cut."""
    here, there = folder / KEPT[0], folder / "recovered"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    write_model(cut, here)
    if mending.teacher and model.path is None:
        raise HeadscopeError("the teacher has no files", where="--teacher", expected="a model that was loaded")
    finetune(
        here,
        task=judgement.task,
        data=judgement.data,
        out=there,
        settings=Settings(epochs=mending.recover, learning_rate=mending.learning_rate, seed=mending.seed),
        max_length=judgement.max_length,
        resume=True,
        teacher=model.path if mending.teacher else None,
        say=say,
    )
    found = load(there, model_class=judgement.task.model_class, device=str(model.device))
    for place in (here, there):
        shutil.rmtree(place)
    found.path = None  # its files are gone; it is written anew
    return found


def _told(plan: Plan, mending: Mending, measured: _Measured | None, stages: dict[str, Any]) -> dict[str, Any]:
    """For the manifest and the card."""
    found: dict[str, Any] = dict(plan.chosen)
    found["how"] = _sentence(plan, mending)
    if measured is not None:
        last = list(stages.values())[-1]["metrics"]
        task = measured.judgement.task
        found["metrics"] = {name: [measured.metrics[name], last[name]] for name in measured.metrics}
        found["stages"] = stages
        found["reported_on"] = f"{task.name}, {measured.judgement.report_on}, {len(measured.prepared.items)} examples"
    found["repair"] = list(mending.repairs)
    found["recover"] = {"epochs": mending.recover, "teacher": mending.teacher} if mending.recover else None
    return found


def _sentence(plan: Plan, mending: Mending) -> str:
    search = plan.chosen.get("search")
    if search is None:
        said = "They were named."
    else:
        on = plan.chosen["selected_on"]
        said = (
            f"By the search `{search}` for the task {plan.chosen['task']}, on {on['examples']} examples of "
            f"{on['split']}; nothing was chosen on the examples below."
        )
    if mending.repairs:
        said += f" Repaired without training: {', '.join(mending.repairs)}."
    if mending.recover:
        beside = " with the whole model as teacher" if mending.teacher else ""
        said += f" Then trained for {mending.recover} epochs{beside}."
    return said
