"""evaluate, the verb: how good is a model at a task, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headscope.ablation.significance import metrics_of
from headscope.config.requirements import check_effects
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.tasks import Task, task_named
from headscope.tasks.base import spread
from headscope.tasks.pooling import PooledTask
from headscope.tasks.running import evaluate as run

Progress = Callable[[int, int], None]


def evaluate(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel],
    *,
    task: str | Task,
    data: str | Path,
    split: str = "dev",
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    max_length: int | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Every metric of a model on a split, and its mean loss in nats, each with value, low and high.

    count is the number of examples it was measured on, available how many the split has. pooling is how texts become
    vectors, for tasks that compare these; else None.

    model   loaded; or what `load` takes; or a function that is given the class to load
    """
    check_effects("evaluate", {"data": data, "split": split})
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    every = chosen.items(data, split)
    items = spread(every, limit, data)
    loaded = loaded_for(model, chosen)
    prepared = chosen.prepare(loaded, items, max_length=max_length)
    judged = run(loaded, chosen, prepared, batch_size=batch_size, progress=progress)
    counts = prepared.counts
    return {
        "model": loaded.name,
        "task": chosen.name,
        "split": split,
        "metrics": metrics_of(chosen, judged),
        "count": len(prepared.items),
        "available": len(every),
        "pooling": loaded.reading.record() if isinstance(chosen, PooledTask) else None,
        "truncated": counts.truncated,
        "skipped": counts.skipped,
        "unknown": asdict(counts.unknown),
    }


def loaded_for(
    model: AttentionModel | str | Path | Callable[[str], AttentionModel], task: Task
) -> AttentionModel:
    """A model that can do the task, or a refusal."""
    loaded = as_model(model, task.model_class)
    task.check(loaded)
    return loaded
