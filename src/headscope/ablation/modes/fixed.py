"""Fixed: the attention weights of an ablated head are replaced by a fixed pattern, such as "previous token"."""

from __future__ import annotations

import numpy as np
import torch

from headscope.ablation.modes import AblationMode
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_patterns import Fixed
from headscope.statistics.fixed_patterns import FixedPatterns
from headscope.tasks.base import Task
from headscope.tasks.inference import report_out_of_memory
from headscope.tasks.prepared import Prepared, batch_of, plan_batches


class FixedMode(AblationMode):
    stacks = ("encoder", "decoder")  # cross-attention has no fixed pattern

    def prepare(
        self, model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
    ) -> None:
        self.patterns = self.patterns or nearest_patterns(model, task, prepared, batch_size)

    def replaces(self, head: Head) -> bool:
        return head in self.patterns

    def edit(self, heads: tuple[Head, ...]) -> Fixed:
        return Fixed({head: self.patterns[head] for head in heads})


def nearest_patterns(
    model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
) -> dict[Head, str]:
    """For each self-attention head the fixed pattern with the least Jensen-Shannon divergence from its weights."""
    statistic = FixedPatterns()
    with torch.inference_mode(), model.watched(statistic.update), report_out_of_memory(batch_size):
        for numbers in plan_batches(prepared, batch_size):
            task.single_pass(model, batch_of(model, prepared, numbers))
    distances: dict[Head, list[tuple[float, str]]] = {}
    for row in statistic.table():
        if np.isfinite(row.value):
            name = row.statistic.removeprefix("js-")
            distances.setdefault(Head(row.stack, row.layer, row.head), []).append((row.value, name))
    return {head: min(pairs)[1] for head, pairs in distances.items()}


MODE = FixedMode
