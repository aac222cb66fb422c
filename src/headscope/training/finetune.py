"""finetune, the verb: train a model on a task and keep the best of its epochs, in a directory that loads anywhere."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from headscope.ablation.significance import metrics_of
from headscope.config.checks import check_label_smoothing
from headscope.config.requirements import check_effects
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.masks import Masked
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import fix as fixed
from headscope.model.fix_heads import read_patterns
from headscope.model.load import load
from headscope.model.saving import write_model
from headscope.model.weights_hash import weights_sha256
from headscope.study.run_record import describe_files, describe_model, versions
from headscope.study.schema.record import SCHEMA
from headscope.tasks import Task, task_named
from headscope.tasks.base import Prepared, two_files
from headscope.tasks.running import evaluate
from headscope.training.from_scratch import Scratch, begun
from headscope.training.loop import Step, Training
from headscope.training.resumable import BEST, DIVERGED, STATE, Resumable, draft, write_whole
from headscope.training.settings import Settings

RECORD = "training.json"

Watcher = Callable[[Step], None]


def finetune(
    model: str | Path,
    *,
    task: str | Task,
    data: str | Path,
    out: str | Path,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    revision: str | None = None,
    pooling: str | None = None,
    prompt: str | None = None,
    teacher: str | Path | None = None,
    mask: str | None = None,
    open_special: bool = False,
    fix: str | None = None,
    scratch: Scratch | None = None,
    label_smoothing: float = 0.0,
    checkpoints: int | None = None,
    validate_on: str = "dev",
    command: str = "",
    watch: Watcher = lambda step: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train `model` on a task; returns the record that is written as training.json.

    task      a name, or a `Task`
    data      a directory with train and dev files
    settings  epochs, batch size, learning rate and the rest
    limit     only so many training examples
    pooling, prompt  as `load` takes them, for tasks that compare vectors of texts
    teacher   a model whose answers are imitated, beside what is right: the one that this was cut from, say
    mask      attend only where this mask lets, in training and validation (open_special: but for special tokens)
    fix       let heads attend by fixed patterns, as in encoder.*.0-6=raganato: they lose queries and keys at once
    scratch   begin with new weights instead of the model's: `Scratch()`, or in another size Scratch(Sizes(layers=3))
    label_smoothing  share of every target that is spread over all tokens, in training: for translation
    checkpoints  so many models along the way, in OUT/checkpoints
    validate_on  the split by which the best epoch is known: dev, or one half of it
    resume    go on from the state that a killed run of the same options left in OUT.partial
    """
    started = time.perf_counter()
    settings = settings or Settings()
    given = {
        "mask": mask,
        "open_special": open_special,
        "task": task,
        "pooling": pooling,
        "prompt": prompt,
    }
    check_effects("finetune", given)
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    _smooth(chosen, label_smoothing)
    files = _files(chosen, data, validate_on)
    train_items = chosen.items(files[0], "train", limit=limit)
    dev_items = chosen.items(files[1], validate_on)
    torch.manual_seed(settings.seed)  # a new classifier's weights follow from it
    labels_of_new = chosen.labels(train_items)
    if scratch is None:
        loaded = load(
            model,
            model_class=chosen.model_class,
            labels=labels_of_new,
            device=device,
            revision=revision,
            pooling=pooling,
            prompt=prompt,
            say=say,
        )
    else:
        loaded = begun(
            model,
            scratch,
            (text for item in train_items for text in item.texts),
            model_class=chosen.model_class,
            labels=labels_of_new,
            device=device,
            revision=revision,
            say=say,
        )
        loaded.reading = loaded.reading.overridden(pooling, prompt)
    loaded.reading.check(loaded.name)  # what cannot be saved is not trained
    if fix is not None:
        loaded = fixed(loaded, read_patterns(fix, loaded.heads))
    loaded.untrained = ()  # what is new is about to be trained
    if mask is not None:
        loaded.wear(Masked(mask, open_special=open_special))
    train = chosen.prepare(loaded, train_items, max_length=max_length)
    dev = chosen.prepare(loaded, dev_items, max_length=max_length)
    header = {
        "model": describe_model(loaded),
        "task": chosen.name,
        "data": describe_files(files),
        "settings": asdict(settings),
        "columns": chosen.columns,
        "labels": chosen.renamed,
        "max_length": max_length,
        "limit": limit,
        "validate_on": validate_on,
        "checkpoints": checkpoints,
        "label_smoothing": label_smoothing,
        "scratch": None if scratch is None else asdict(scratch),
        "versions": versions(),
    }
    followed = (
        None if teacher is None else load(teacher, model_class=chosen.model_class, device=device)
    )
    if followed is not None:
        header["teacher"] = weights_sha256(followed)
    training = Training(loaded, chosen, train, settings, followed)
    is_main = training.accelerator.is_main_process
    with draft(training, out, overwrite=overwrite, resume=resume, record=RECORD) as folder:
        run = Resumable(training, folder, header, checkpoints=checkpoints, may_slow=True)
        if resume:
            run.restore(say)
        epochs: list[dict[str, Any]] = run.told.setdefault("epochs", [])
        for step in run.steps():
            watch(step)
            if step.ends_epoch:
                epochs.append(measured(loaded, chosen, dev, step))
                if is_best(epochs) and is_main:
                    write_whole(loaded.model.state_dict(), folder / BEST)
                run.save()
                say(told_of(epochs[-1]))  # what is said is kept
        record = {
            "schema": SCHEMA,
            "command": command,
            **header,
            "epochs": epochs,
            "best": max(epochs, key=_goodness),
            "diverged": run.told.get("diverged", []),
            "seconds": round(time.perf_counter() - started, 1),
        }
        if is_main:
            loaded.model.load_state_dict(torch.load(folder / BEST, weights_only=True))
            _write(loaded, record, folder)
    return record


def _smooth(task: Task, share: float) -> None:
    check_label_smoothing(share)
    if task.smoothing is not None:
        task.smoothing = share
    elif share:
        raise HeadscopeError(
            f"{task.name} has no tokens to smooth over", where="`label_smoothing`", expected="0"
        )


def _files(task: Task, data: str | Path, validate_on: str) -> list[Path]:
    """The files to train on and to validate on, or a refusal."""
    expected = "a directory with a train file and a dev file"
    if two_files(data) is not None:
        mend = "Put each split into one file, with a tab between: paste train.en train.fr > data/train.tsv"
        raise HeadscopeError("two files are one split", where=data, expected=expected, mend=mend)
    files = [find_split(data, split, task=task.name) for split in ("train", validate_on)]
    if files[0] == files[1]:
        raise HeadscopeError("one file cannot be both train and dev", where=data, expected=expected)
    return files


def measured(model: AttentionModel, task: Task, dev: Prepared, step: Step) -> dict[str, Any]:
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


def told_of(epoch: dict[str, Any]) -> str:
    value = epoch["value"]
    said = "undefined (one answer to all)" if value is None else f"{value:.4f}"
    return f"epoch {epoch['epoch']}: dev loss {epoch['dev_loss']:.4f}, {epoch['metric']} {said}"


def _goodness(epoch: dict[str, Any]) -> tuple[float, float]:
    """The metric, and of epochs as good the lower loss; an undefined metric is below all."""
    return -math.inf if epoch["value"] is None else epoch["value"], -epoch["dev_loss"]


def is_best(epochs: list[dict[str, Any]]) -> bool:
    """Whether the last one is better than all before it."""
    return all(_goodness(epochs[-1]) > _goodness(one) for one in epochs[:-1])


def _write(model: AttentionModel, record: dict[str, Any], folder: Path) -> None:
    write_model(model, folder)
    (folder / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for name in (STATE, BEST, DIVERGED):
        (folder / name).unlink(missing_ok=True)
