"""What a cut model is judged by, and how it is mended: repairs without training, and training."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.study.finetune import finetune
from headscope.tasks import Task
from headscope.training.loop import Settings

KEPT = ("cut", "recovered.partial")  # of a recovery that was stopped


@dataclass(frozen=True)
class Judgement:
    """A task, its data, and the two splits: what is learned from the one is reported on the other.

    report_limit  only so many examples of it, evenly spread
    """

    task: Task
    data: str | Path
    learn_on: str = "dev:even"
    report_on: str = "dev:odd"
    max_length: int | None = None
    batch_size: int = 32
    report_limit: int | None = None

    @property
    def named(self) -> str:
        """What is reported on, as `headscope evaluate` takes it."""
        few = f" --limit {self.report_limit}" if self.report_limit else ""
        return f"--task {self.task.name} --data {self.data} --split {self.report_on}{few}"


@dataclass(frozen=True)
class Mending:
    """repairs: fold, refit. recover: epochs of training on the train split, with the whole model as teacher or not."""

    repairs: tuple[str, ...] = ()
    recover: int = 0
    teacher: bool = False
    learning_rate: float = 5e-5
    seed: int = 0


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
