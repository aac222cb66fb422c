"""Finetune: train a model on a task and keep the weights of its best epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from headscope.ablation.significance import metrics_of
from headscope.config.finetune import FinetuneConfig
from headscope.config.option import record_options
from headscope.config.shared import Reading, Run, TaskData
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.masks import Masked
from headscope.masks.open_model import check_loaded, open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import fix, read_patterns
from headscope.model.load import ModelSource, load
from headscope.model.new_model import Architecture, read_source
from headscope.model.saving import write_model
from headscope.model.weights import weights_sha256
from headscope.study.run_record import describe_files, describe_model, versions
from headscope.tasks import Item, Task, task_of
from headscope.tasks.inference import evaluate
from headscope.tasks.items import two_files
from headscope.tasks.prepared import Prepared
from headscope.training.from_scratch import build_model
from headscope.training.loop import LoopSettings, Step, Training
from headscope.training.result import (
    EpochRecord,
    TrainingRecord,
    TrainingResult,
    training_record,
    write_training,
)
from headscope.training.resumable import BEST, resumable_run, save_atomically


def finetune(
    model: ModelSource, config: FinetuneConfig, data: TaskData, reading: Reading, run: Run
) -> TrainingResult:
    """Train a model on the train split of a task, and keep the weights of the epoch that is best on `data.select_on`.

    If `model` is a loaded model, a copy is trained.
    """
    started = time.perf_counter()
    task = task_of(data)
    if task.smoothing is not None:
        task.smoothing = config.label_smoothing
    elif config.label_smoothing:
        raise HeadscopeError(
            f"must be 0 for {task.name}, which has no target tokens, got {config.label_smoothing:g}",
            where="`label_smoothing`",
        )
    select_on = data.select_on or "dev"
    files = _files(task, data.data, select_on)
    train_items = task.items(files[0], "train", limit=data.limit)
    dev_items = task.items(files[1], select_on)
    torch.manual_seed(run.seed)  # determines the weights of a new classifier
    loaded = _open(model, task, config, train_items, reading, run)
    train = task.prepare(loaded, train_items, max_length=data.max_length)
    dev = task.prepare(loaded, dev_items, max_length=data.max_length)
    teacher = config.distil
    if teacher is not None and not isinstance(teacher, AttentionModel):
        teacher = load(teacher, model_class=task.model_class, device=run.device)
    header: TrainingRecord = {
        "config": record_options(config, data, reading, run),
        "model": describe_model(loaded),
        "task": task.name,
        "data": describe_files(files),
        "columns": task.columns,
        "labels": task.renamed,
    }
    if teacher is not None:
        header["teacher"] = weights_sha256(teacher)
    header["versions"] = versions()
    settings = LoopSettings.from_config(config, run.seed)
    training = Training(loaded, task, train, settings, teacher)
    is_main = training.accelerator.is_main_process
    with resumable_run(training, run, header, config.checkpoints) as resumable:
        best = resumable.folder / BEST
        epochs = resumable.history.setdefault("epochs", [])
        for step in resumable.steps():
            run.progress(step.number, step.total, "steps")
            if step.ends_epoch:
                epochs.append(evaluate_epoch(loaded, task, dev, step))
                if is_best(epochs) and is_main:
                    save_atomically(loaded.model.state_dict(), best)
                resumable.save()
                # Logged only after saving, so that a logged epoch is never trained again.
                run.log(describe_epoch(epochs[-1]))
        content: TrainingRecord = {"epochs": epochs, "best": max(epochs, key=_goodness)}
        record = training_record(run, header, content, resumable.history, started)
        if is_main:
            loaded.model.load_state_dict(torch.load(best, weights_only=True))
            if run.out is not None:
                write_training(loaded, record, resumable.folder)
    return TrainingResult(loaded, record, run.out)


def _open(
    model: ModelSource,
    task: Task,
    config: FinetuneConfig,
    items: list[Item],
    reading: Reading,
    run: Run,
) -> AttentionModel:
    """The model to train. A new classifier has the classes of the training examples."""
    kind, labels = task.model_class, task.labels(items)
    if config.from_scratch:
        texts = (text for item in items for text in item.texts)
        source = read_source(_source(model), run.revision, run.log)
        loaded = build_model(Architecture(source, kind, config, labels), texts, run)
        loaded.reading = loaded.reading.override(reading.pooling, reading.prompt)
    elif isinstance(model, AttentionModel):
        check_loaded(reading, run)
        loaded = _copy_for(task, model, labels)
    else:
        # The mask is applied below, after heads are fixed.
        unmasked = replace(reading, mask=None, open_special=False)
        loaded = open_model(model, unmasked, run, model_class=kind, labels=labels)
    # raises an error now if the model could not be saved after training
    loaded.reading.check(loaded.name)
    if config.fix is not None:
        loaded = fix(loaded, read_patterns(config.fix, loaded.heads))
    loaded.untrained = ()  # no warning about new weights: they will be trained
    if reading.mask is not None:
        loaded.edit_permanently(Masked(reading.mask, open_special=reading.open_special))
    elif isinstance(model, AttentionModel):
        loaded.edit_permanently(*model.permanent_edits)
    return loaded


def _source(model: ModelSource) -> str | Path:
    """The name or directory from which the architecture of a model is read."""
    if not isinstance(model, AttentionModel):
        return model
    if model.path is None:
        raise HeadscopeError(
            "`from_scratch=True` requires the name or directory of a model, got one without files",
            where=model.name,
        )
    return model.path


def _copy_for(task: Task, model: AttentionModel, labels: Sequence[str]) -> AttentionModel:
    """A copy of a loaded model with the classifier of the task: written to a temporary directory and loaded."""
    kind, device, reading = task.model_class, str(model.device), model.reading
    with TemporaryDirectory() as folder:
        write_model(model, Path(folder))
        copy = load(folder, model_class=kind, labels=labels, device=device, reading=reading)
    copy.name, copy.path, copy.revision = model.name, model.path, model.revision
    return copy


def _files(task: Task, data: str | Path, select_on: str) -> list[Path]:
    """The files of the train split and the selection split."""
    expected = "a directory with a train file and a dev file"
    if two_files(data) is not None:
        fix = "Put each split into one file, with a tab between: paste train.en train.fr > data/train.tsv"
        raise HeadscopeError("two files are one split", where=data, expected=expected, fix=fix)
    files = [find_split(data, split, task=task.name) for split in ("train", select_on)]
    if files[0] == files[1]:
        raise HeadscopeError("one file cannot be both train and dev", where=data, expected=expected)
    return files


def evaluate_epoch(model: AttentionModel, task: Task, dev: Prepared, step: Step) -> EpochRecord:
    """Loss and metrics after an epoch. step: the last step of the epoch."""
    judged = evaluate(model, task, dev)
    metrics = metrics_of(task, judged)
    name = task.metrics[0]
    return {
        "epoch": step.epoch + 1,
        "train_loss": step.loss,
        "dev_loss": float(judged.losses.mean()),
        "metric": name,
        "value": metrics[name]["value"],
        "metrics": metrics,
    }


def describe_epoch(epoch: EpochRecord) -> str:
    """A log line with the loss and the metric of an epoch."""
    value = epoch["value"]
    metric = "undefined (one answer to all)" if value is None else f"{value:.4f}"
    return f"epoch {epoch['epoch']}: dev loss {epoch['dev_loss']:.4f}, {epoch['metric']} {metric}"


def _goodness(epoch: EpochRecord) -> tuple[float, float]:
    """Sort key of epochs: a higher metric is better, then a lower loss. An undefined metric is worst."""
    return -math.inf if epoch["value"] is None else epoch["value"], -epoch["dev_loss"]


def is_best(epochs: Sequence[EpochRecord]) -> bool:
    """Whether the last epoch is better than all before it."""
    return all(_goodness(epochs[-1]) > _goodness(epoch) for epoch in epochs[:-1])
