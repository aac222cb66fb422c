"""headscope.evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.ablation import evaluate as evaluation
from headscope.config.evaluate import EvaluateConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.attention_model import AttentionModel


def evaluate(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: EvaluateConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Metrics and loss of a model on a task, with 95 % intervals.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        Task and data; or the data, with the task as `task=`.
    config, reading, run
        Options; see `EvaluateConfig`, `Reading` and `Run`.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    dict
        `metrics` (value, low and high by name), `count`, `available`, `pooling` and what was truncated or skipped.
    """
    configs = fill(
        "evaluate",
        options,
        (EvaluateConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    return evaluation.evaluate(model, *configs)
