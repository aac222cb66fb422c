"""Whether a model performs better than chance; only then the importance of its heads has a meaning.

A model is at chance if its metric is not better than the best constant answer and its loss not better than a guess,
each by its 95 % interval. Both are compared if the task has both baselines: a model may be overconfident and right.
If the interval contains the baseline but the value is better by more than a standard error, there are too few examples.
"""

from __future__ import annotations

from collections.abc import Mapping

from headscope.model.attention_model import AttentionModel
from headscope.tables import Z
from headscope.tasks.base import Task
from headscope.tasks.prepared import Prepared

Metrics = Mapping[str, Mapping[str, float | None]]


def chance_note(
    model: AttentionModel, task: Task, prepared: Prepared, metrics: Metrics
) -> str | None:
    """A sentence if the model is not better than chance, else None.

    metrics  of the model on these examples, with intervals (`metrics_of`)
    """
    chance, name = task.chance(model, prepared), task.metrics[0]
    reasons, is_better = [], False
    for what, is_higher_better, baseline, words in (
        (name, True, chance.metric, "a constant answer has"),
        ("loss", False, chance.loss, "a guess has"),
    ):
        value, end = metrics[what]["value"], metrics[what]["low" if is_higher_better else "high"]
        if baseline is None or value is None or end is None:
            continue
        if end > baseline if is_higher_better else end < baseline:
            return None
        error = abs(end - value) / Z
        is_better |= (value - baseline if is_higher_better else baseline - value) > error
        interval = f"[{metrics[what]['low']:.3f}, {metrics[what]['high']:.3f}]"
        reasons.append(f"{what} {value:.3f} {interval}, {words} {baseline:.3f}")
    if not reasons:
        return None
    listed = "; ".join(reasons)
    if is_better:
        count = len(prepared.items)
        return f"{count} examples are too few to show that this model knows anything of {task.name} ({listed})"
    return f"this model knows nothing of {task.name} ({listed}): which heads matter for it means nothing"
