"""headscope.evaluate."""

from __future__ import annotations

from headscope.ablation import evaluate as evaluation
from headscope.ablation.evaluate import Evaluation
from headscope.api.configured import ModelSource, on_task
from headscope.config.evaluate import EvaluateConfig
from headscope.config.shared import Reading, Run, TaskData


@on_task
def evaluate(
    model: ModelSource, data: TaskData, config: EvaluateConfig, reading: Reading, run: Run
) -> Evaluation:
    """Metrics and loss of a model on a task, with 95 % intervals.

    Returns
    -------
    Evaluation
        Read its entries as `result["metrics"]`: `metrics` (value, low and high by name), `count`, `available`,
        `pooling`, and counts of truncated and skipped texts. `record` has all of them; also `tables` and `write(out)`.

    Examples
    --------
    >>> result = headscope.evaluate("minilm", "stsb_dev.tsv", task="stsb")  # doctest: +SKIP
    >>> result["metrics"]["spearman"]["value"]  # doctest: +SKIP
    """
    return evaluation.evaluate(model, config, data, reading, run)
