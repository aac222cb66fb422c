"""How large is what a head writes? The mean length of each head's share of its site's output, over real tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.heads import Head, Site
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.replay import weight_of
from headscope.model.tokens import Batch
from headscope.tasks.base import Prepared, Task, batch_of, plan
from headscope.tasks.running import memory_named


def output_norms(model: AttentionModel, task: Task, prepared: Prepared, batch_size: int = 32) -> dict[Head, float]:
    """Each head's mean norm after the output projection; none for a family whose projection is no module."""
    modules = dict(model.model.named_modules())
    parts = anatomy(model)
    weights = {site: weight_of(modules[part.projection]) for site, part in parts.items() if part.projection}
    norms = _Norms(weights)
    with torch.inference_mode(), model.edited(norms), memory_named(batch_size):
        for numbers in plan(prepared, batch_size):
            norms.batch = batch_of(model, prepared, numbers)
            task.call(model, norms.batch)
    return {
        Head(site.stack, site.layer, head): float(total / norms.counts[site])
        for site, totals in norms.totals.items()
        for head, total in enumerate(totals.tolist())
    }


class _Norms(Edit):
    """Changes nothing; sums the norms of what heads add."""

    def __init__(self, weights: dict[Site, Tensor]) -> None:
        self.weights = weights
        self.batch: Batch | None = None
        self.totals: dict[Site, Tensor] = {}
        self.counts: dict[Site, int] = {}

    def changes_output(self, site: Site) -> bool:
        return site in self.weights

    def output(self, site: Site, output: Tensor) -> Tensor:
        assert self.batch is not None
        sides = self.batch.layout.sides(site.stack)
        assert sides is not None
        results = output[sides[0].real.to(output.device)]  # [token, head, head width]
        weight = self.weights[site].reshape(-1, *results.shape[1:])  # [width, head, head width]
        # |W c|² = c' (W'W) c: a small square matrix a head instead of its whole share.
        squares = torch.einsum("whi,whj->hij", weight, weight)
        norms = torch.einsum("thi,hij,thj->th", results, squares, results).clamp_min(0).sqrt().double()
        self.totals[site] = self.totals.get(site, 0) + norms.sum(dim=0)
        self.counts[site] = self.counts.get(site, 0) + norms.shape[0]
        return output
