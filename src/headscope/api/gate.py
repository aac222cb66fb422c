"""headscope.gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.api._write import report_writer
from headscope.config.gate import GateConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import gate as learning
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study


def gate(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: GateConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Learn which heads of a model a task needs: a gate on every head, trained with the weights or alone.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. A loaded model is not changed: copies are trained.
    data
        Task and data; or the data, with the task as `task=`.
    config, reading, run
        Options; see `GateConfig`, `Reading` and `Run`. Without `out` nothing is written.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Study
        Its tables are `front` (the pruned models), `gates` (every gate over the steps) and, with `roles`, `gate_roles`.

    Notes
    -----
    With `run.out`, every target has a directory with a plan and, unless the weights were frozen, the trained model;
    `headscope.prune` applies the plan.

    Examples
    --------
    headscope.gate("minilm-mnli", task="mnli", data="glue", keep=[20, 40], out="gated")
    """
    own, task_data, texts, how = fill(
        "gate", options, (GateConfig, config), (TaskData, data), (Reading, reading), (Run, run)
    )
    return learning.gate(model, own, task_data, texts, how, report_writer(how))
