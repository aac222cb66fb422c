"""Recover a pruned model: train it on the train split of its task."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from headscope.config.finetune import FinetuneConfig
from headscope.config.option import record_options
from headscope.config.prune import PruneConfig
from headscope.config.search import splits_of
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.weights import weights_sha256
from headscope.study.run_record import describe_files
from headscope.tasks import task_of
from headscope.tasks.items import check_apart
from headscope.training.finetune import finetune
from headscope.training.result import RECORD

TRAINING_FILES = ("cut", "recovered.partial", "recovered")  # temporary, until the model is written


def check_splits(config: PruneConfig, data: TaskData) -> None:
    """Refuse splits that cannot be used for repair or training.

    The report split must not overlap with a split that is used for either of them, and training needs a train file.
    """
    select_on = splits_of(data)[0]
    if config.repair or config.recover:
        check_report_split(data, select_on)
    if config.recover:
        task = task_of(data).name
        if len({find_split(data.data, split, task=task) for split in ("train", select_on)}) == 1:
            raise HeadscopeError(
                "there is no train file",
                where=data.data,
                expected="a directory with one",
                fix="Leave `recover` out",
            )
        check_report_split(data, "train")


def check_report_split(data: TaskData, split: str) -> None:
    """Refuse to report on examples of a split that was used for selection, repair or training."""
    task = task_of(data)
    used, reported = (task.items(data.data, name) for name in (split, splits_of(data)[1]))
    check_apart(used, reported, "`report_on`")


def recover(
    model: AttentionModel,
    pruned: AttentionModel,
    folder: Path,
    config: PruneConfig,
    data: TaskData,
    run: Run,
) -> AttentionModel:
    """Train the pruned model. An unfinished training of the same pruned model in this folder is resumed.

    model  the unpruned model, from which the pruned one learns if `config.distil`
    """
    start, out = folder / "cut", folder / "recovered"
    shutil.rmtree(start, ignore_errors=True)
    start.mkdir()
    write_model(pruned, start)
    if config.distil and model.path is None:
        raise HeadscopeError(
            "the teacher has no files", where="`distil`", expected="a model that was loaded"
        )
    task = task_of(data)
    train_data = TaskData(task, data.data, select_on=splits_of(data)[0], max_length=data.max_length)
    training = FinetuneConfig(
        epochs=config.recover,
        learning_rate=config.learning_rate,
        distil=model.path if config.distil else None,
    )
    train_run = Run(out=out, seed=run.seed, device=str(model.device), resume=True, log=run.log)
    if _is_trained(start, training, train_data, train_run):
        run.log("the pruned model is trained already")
    else:
        shutil.rmtree(out, ignore_errors=True)
        finetune(start, training, train_data, Reading(), train_run)
    trained = load(
        out, model_class=task.model_class, device=str(model.device), reading=pruned.reading
    )
    # Its files are temporary; the caller writes the model to its final directory.
    trained.path = None
    assert trained.cut is not None
    assert pruned.cut is not None
    # Loading the temporary files added this pruning to the history of earlier ones. It is the same pruning.
    trained.cut = replace(trained.cut, history=pruned.cut.history)
    return trained


def _is_trained(cut: Path, config: FinetuneConfig, data: TaskData, run: Run) -> bool:
    """Whether `run.out` holds the finished training of the same weights on the same data with the same options."""
    if run.out is None or not (run.out / RECORD).is_file():
        return False
    record = json.loads((run.out / RECORD).read_text("utf-8"))
    splits = ("train", str(data.select_on))
    files = [find_split(data.data, split, task=data.task.name) for split in splits]
    return bool(
        record["model"]["sha256"] == weights_sha256(load(cut))
        and record["config"] == record_options(config, data, Reading(), run)
        and record["data"] == describe_files(files)
    )


def delete_training_files(folder: Path) -> None:
    """Delete the temporary files of a training."""
    for name in TRAINING_FILES:
        shutil.rmtree(folder / name, ignore_errors=True)
