"""evaluate, the verb: how good is a model at a task, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.importances.significance import resamples
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.tasks import Judged, Task, task_named
from headscope.tasks.running import evaluate as run

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    model   loaded; or what `load` takes; or a function that is given the class to load
    """
    chosen = task_named(task, columns=columns, labels=labels) if isinstance(task, str) else task
    items = chosen.items(data, split, limit=limit)
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
        "truncated": counts.truncated,
        "skipped": counts.skipped,
    }


def loaded_for(model: AttentionModel | str | Path | Callable[[str], AttentionModel], task: Task) -> AttentionModel:
    """A model that can do the task, or a refusal."""
    if isinstance(model, str | Path):
        model = load(model, model_class=task.model_class)
    elif not isinstance(model, AttentionModel):
        model = model(task.model_class)
    task.check(model)
    return model


def metrics_of(task: Task, judged: Judged, seed: int = 0) -> dict[str, dict[str, float | None]]:
    """Each metric, and the loss, with a 95 % interval (of a mean, else by bootstrap); None where undefined."""
    values = task.measure(judged.scores)
    draws = resamples(len(judged.scores), seed, 200)
    sampled = [task.measure(judged.scores[draw]) for draw in draws]
    found = {"loss": _mean(judged.losses)}
    for place, (name, value) in enumerate(values.items()):
        if place == 0 and task.mean_column is not None:
            found[name] = _mean(judged.scores[:, task.mean_column])
        else:
            defined = [one[name] for one in sampled if np.isfinite(one[name])]
            half = 1.96 * float(np.std(defined, ddof=1)) if len(defined) > 1 else np.nan
            found[name] = _given(value, half)
    return found


def _mean(values: NDArray[np.float64]) -> dict[str, float | None]:
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return _given(float(values.mean()), half)


def _given(value: float, half: float) -> dict[str, float | None]:
    found = {"value": value, "low": value - half, "high": value + half}
    return {name: float(one) if np.isfinite(one) else None for name, one in found.items()}
