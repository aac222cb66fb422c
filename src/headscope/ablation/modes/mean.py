"""Mean: the output of an ablated head is replaced by its mean over all tokens of the examples."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.ablation.modes import AblationMode
from headscope.heads import Head, Site
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit, Replace
from headscope.model.tokens import Batch
from headscope.tasks.base import Task
from headscope.tasks.inference import report_out_of_memory
from headscope.tasks.prepared import Prepared, batch_of, plan_batches


class MeanMode(AblationMode):
    def prepare(
        self, model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
    ) -> None:
        self.means = mean_results(model, task, prepared, batch_size)

    def constant(self, head: Head) -> Tensor:
        return self.means[head]

    def edit(self, heads: tuple[Head, ...]) -> Replace:
        return Replace({head: self.means[head] for head in heads})


def mean_results(
    model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
) -> dict[Head, Tensor]:
    """Each head's mean output [head width], before projection, over all tokens except padding."""
    sums = _Sums()
    with torch.inference_mode(), model.edited(sums), report_out_of_memory(batch_size):
        for numbers in plan_batches(prepared, batch_size):
            sums.batch = batch_of(model, prepared, numbers)
            task.single_pass(model, sums.batch)
    return {
        head: (row / sums.counts[site]).float()
        for site, total in sums.totals.items()
        for head, row in zip(site.heads(len(total)), total, strict=True)
    }


class _Sums(Edit):
    """An edit that leaves outputs as they are, and sums the heads' outputs over all tokens except padding."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.totals: dict[Site, Tensor] = {}
        self.counts: dict[Site, int] = {}

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        assert self.batch is not None
        sides = self.batch.layout.sides(site.stack)
        assert sides is not None
        real = output[sides[0].real.to(output.device)].double()  # [token, head, head width]
        self.totals[site] = self.totals.get(site, 0) + real.sum(dim=0)
        self.counts[site] = self.counts.get(site, 0) + real.shape[0]
        return output


MODE = MeanMode
