"""headscope.gate."""

from __future__ import annotations

from headscope.api.configured import ModelSource, on_task
from headscope.api.study_output import report_writer
from headscope.config.gate import GateConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import gate as learning
from headscope.study.study import Study


@on_task
def gate(
    model: ModelSource, data: TaskData, config: GateConfig, reading: Reading, run: Run
) -> Study:
    """Learn which heads of a model a task needs, by training a gate on every head, with or without the weights.

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
    >>> study = headscope.gate("minilm-mnli", task="mnli", data="glue", keep=[20, 40], out="gated")  # doctest: +SKIP
    """
    return learning.gate(model, config, data, reading, run, report_writer(run))
