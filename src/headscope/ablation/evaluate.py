"""How good a model is at a task: every metric and the mean loss, with intervals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headscope.ablation.significance import metrics_of
from headscope.config.evaluate import EvaluateConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.tasks import Task, task_of
from headscope.tasks.base import sample_evenly
from headscope.tasks.inference import evaluate as run_task
from headscope.tasks.pooling import PooledTask


def evaluate(
    model: AttentionModel | str | Path,
    config: EvaluateConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
) -> dict[str, Any]:
    """Every metric of a model on a split, and its mean loss in nats, each with value, low and high.

    `count` is the number of examples it was measured on, `available` how many the split has. `pooling` is how texts
    become vectors, for tasks that compare vectors; else None.
    """
    task = task_of(data)
    every = task.items(data.data, data.split)
    items = sample_evenly(every, data.limit, data.data)
    loaded = open_for(task, model, reading, run)
    prepared = task.prepare(loaded, items, max_length=data.max_length)
    judged = run_task(loaded, task, prepared, batch_size=config.batch_size, progress=run.progress)
    counts = prepared.counts
    return {
        "model": loaded.name,
        "task": task.name,
        "split": data.split,
        "metrics": metrics_of(task, judged),
        "count": len(prepared.items),
        "available": len(every),
        "pooling": loaded.reading.record() if isinstance(task, PooledTask) else None,
        "truncated": counts.truncated,
        "skipped": counts.skipped,
        "unknown": asdict(counts.unknown),
    }


def open_for(
    task: Task, model: AttentionModel | str | Path, reading: Reading, run: Run
) -> AttentionModel:
    """The model, with the class the task needs; refused if it cannot do the task."""
    loaded = open_model(model, reading, run, model_class=task.model_class)
    task.check(loaded)
    return loaded
