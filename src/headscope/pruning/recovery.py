"""What a cut model is judged by, and how it is mended: repairs without training, and training."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headscope.config.checks import check_count
from headscope.config.command_line import option_words
from headscope.config.finetune import FinetuneConfig
from headscope.config.option import recorded
from headscope.config.search import Mending
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.weights_hash import weights_sha256
from headscope.study.run_record import describe_files
from headscope.tasks import Task
from headscope.tasks.base import check_apart
from headscope.training.finetune import finetune
from headscope.training.result import RECORD

KEPT = ("cut", "recovered.partial", "recovered")  # of a recovery: until the model is written


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

    def __post_init__(self) -> None:
        if self.report_limit is not None:
            check_count(self.report_limit, "`report_limit`")

    def check(self, mending: Mending) -> None:
        """Refuse splits that overlap where something is learned from one, and a recovery with nothing to train on."""
        mending.check()
        if mending.repairs or mending.recover:
            self.check_apart_from(self.learn_on)
        if mending.recover:
            files = [
                find_split(self.data, split, task=self.task.name)
                for split in ("train", self.learn_on)
            ]
            if files[0] == files[1]:
                raise HeadscopeError(
                    "there is no train file",
                    where=self.data,
                    expected="a directory with one",
                    mend="Leave `recover` out",
                )
            self.check_apart_from("train")

    def check_apart_from(self, split: str) -> None:
        """Refuse to report on examples of this split."""
        learned, reported = (self.task.items(self.data, one) for one in (split, self.report_on))
        check_apart(learned, reported, "`report_on`")

    @property
    def evaluate_options(self) -> dict[str, object]:
        """What is reported on, as `headscope evaluate` takes it."""
        options = {
            "task": self.task.name,
            "data": self.data,
            "split": self.report_on,
            "limit": self.report_limit,
            "max_length": self.max_length,
            "batch_size": None if self.batch_size == 32 else self.batch_size,
            "columns": ",".join(f"{ours}={theirs}" for ours, theirs in self.task.columns.items()),
            "labels": ",".join(f"{theirs}={ours}" for theirs, ours in self.task.renamed.items()),
        }
        return {name: value for name, value in options.items() if value}

    @property
    def named(self) -> str:
        """The same as typed."""
        return shlex.join(option_words(self.evaluate_options))


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
    here, there = folder / "cut", folder / "recovered"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    write_model(cut, here)
    if mending.teacher and model.path is None:
        raise HeadscopeError(
            "the teacher has no files", where="`teacher`", expected="a model that was loaded"
        )
    data = TaskData(
        task=judgement.task,
        data=judgement.data,
        select_on=judgement.learn_on,
        max_length=judgement.max_length,
    )
    config = FinetuneConfig(
        epochs=mending.recover,
        learning_rate=mending.learning_rate,
        teacher=model.path if mending.teacher else None,
    )
    run = Run(out=there, seed=mending.seed, device=str(model.device), resume=True, log=say)
    if _is_trained(here, config, data, run):
        say("it is trained already")
    else:
        shutil.rmtree(there, ignore_errors=True)
        finetune(here, config, data, Reading(), run)
    found = load(
        there, model_class=judgement.task.model_class, device=str(model.device), reading=cut.reading
    )
    found.path = None  # its files are gone; it is written anew
    assert found.cut is not None
    assert cut.cut is not None
    found.cut = replace(found.cut, history=cut.cut.history)  # it was not cut twice
    return found


def _is_trained(cut: Path, config: FinetuneConfig, data: TaskData, run: Run) -> bool:
    """Whether `run.out` holds the finished training of the same weights on the same data with the same options."""
    if run.out is None or not (run.out / RECORD).is_file():
        return False
    record = json.loads((run.out / RECORD).read_text("utf-8"))
    splits = ("train", str(data.select_on))
    files = [find_split(data.data, split, task=data.task.name) for split in splits]
    return bool(
        record["model"]["sha256"] == weights_sha256(load(cut))
        and record["config"] == recorded(config, data, Reading(), run)
        and record["data"] == describe_files(files)
    )


def clear(folder: Path) -> None:
    """Away with what a recovery needed."""
    for name in KEPT:
        shutil.rmtree(folder / name, ignore_errors=True)
