"""Whether a model performs better than chance. If it does not, the importance of its heads means nothing.

A metric or loss is better than its baseline if the 95 % interval excludes the baseline. The metric's baseline is the
best constant answer, the loss's baseline is a guess. A model is better than chance if either of them is better: an
overconfident model can have a bad loss and a good metric. Otherwise, if either of them is better than its baseline by
more than a standard error, there are too few examples to tell.
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
    """A warning in words if the model is not better than chance; else None.

    metrics  the model's metrics on these examples, with intervals (`metrics_of`)
    """
    chance, name = task.chance(model, prepared), task.metrics[0]
    reasons, may_be_better = [], False  # may be better: by more than a standard error
    for measure, is_higher_better, baseline, words in (
        (name, True, chance.metric, "a constant answer has"),
        ("loss", False, chance.loss, "a guess has"),
    ):
        columns = metrics[measure]
        value, end = columns["value"], columns["low" if is_higher_better else "high"]
        if baseline is None or value is None or end is None:
            continue
        if end > baseline if is_higher_better else end < baseline:
            return None
        error = abs(end - value) / Z
        may_be_better |= (value - baseline if is_higher_better else baseline - value) > error
        interval = f"[{columns['low']:.3f}, {columns['high']:.3f}]"
        reasons.append(f"{measure} {value:.3f} {interval}, {words} {baseline:.3f}")
    if not reasons:
        return None
    listed = "; ".join(reasons)
    if may_be_better:
        count = len(prepared.items)
        return f"{count} examples are too few to show that this model is better than chance on {task.name} ({listed})"
    return f"this model is at chance level on {task.name} ({listed}): its head importance is not meaningful"
