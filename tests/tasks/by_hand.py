"""Losses written out by hand, with Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from headscope.model.attention_model import AttentionModel
from headscope.tasks import Item, Judged, Prepared, Task
from headscope.tasks.inference import evaluate


def log_softmax(logits: Sequence[float], which: int) -> float:
    """Minus this is the cross-entropy."""
    largest = max(logits)
    return logits[which] - largest - math.log(sum(math.exp(logit - largest) for logit in logits))


def alone(
    model: AttentionModel, first: str, second: str | None = None, **changes: object
) -> object:
    """The model's output for one text or pair, unpadded, by the tokenizer's own call."""
    inputs = dict(model.tokenizer(first, second, return_tensors="pt")) | changes  # type: ignore[misc]
    with torch.no_grad():
        return model.model(**inputs)


def judged(
    model: AttentionModel, task: Task, items: list[Item], *, batch_size: int = 4
) -> tuple[Prepared, Judged]:
    prepared = task.prepare(model, items)
    return prepared, evaluate(model, task, prepared, batch_size=batch_size)
