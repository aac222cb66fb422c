"""Output norm: the mean length of the vector that a head adds to the residual stream, over tokens except padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headscope.ablation.estimates import FORWARD, Estimate, EstimateInputs
from headscope.heads import Head, Site
from headscope.model.anatomy import anatomy, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.tokens import Batch
from headscope.statistics.base import Definition
from headscope.tables import Moments, rows_of
from headscope.tasks.base import Task
from headscope.tasks.inference import report_out_of_memory
from headscope.tasks.prepared import Prepared, batch_of, plan_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFINITIONS = {
    "output-norm": Definition(
        "length",
        "Length of what the head adds",
        "Norm of the head's output after the output projection, averaged over tokens.",
    ),
}
COST = FORWARD


def output_norms(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    heads: Sequence[Head],
    batch_size: int = 32,
) -> NDArray[np.float64] | None:
    """[item, head]: the mean norm after the output projection over an item's tokens, without padding.

    None if no attention module has an output projection of its own.
    """
    modules = dict(model.model.named_modules())
    parts = anatomy(model)
    weights = {
        site: weight_of(modules[part.projection]) for site, part in parts.items() if part.projection
    }
    if not weights:
        return None
    norms = _Norms(weights)
    result = np.full((len(prepared.sequences), len(heads)), np.nan)  # [sequence, head]
    with torch.inference_mode(), model.edited(norms), report_out_of_memory(batch_size):
        for numbers in plan_batches(prepared, batch_size):
            norms.batch = batch_of(model, prepared, numbers)
            task.single_pass(model, norms.batch)
            for i, head in enumerate(heads):
                if head.site in norms.means:
                    result[numbers, i] = norms.means[head.site][:, model.index_of(head)].numpy()
    return np.stack([result[list(part)].mean(axis=0) for part in prepared.parts])


class _Norms(Edit):
    """Changes nothing; stores the mean norms [sequence, head] of each site's heads for the last batch."""

    def __init__(self, projections: dict[Site, Tensor]) -> None:
        self.projections = projections
        self.batch: Batch | None = None
        self.means: dict[Site, Tensor] = {}

    def changes_output(self, site: Site) -> bool:
        return site in self.projections

    def output(self, site: Site, output: Tensor) -> Tensor:
        assert self.batch is not None
        sides = self.batch.layout.sides(site.stack)
        assert sides is not None
        real = sides[0].real.to(output.device)  # [sequence, token]
        weight = self.projections[site].reshape(-1, *output.shape[2:])  # [width, head, head width]
        # |W c|² = c' (W'W) c needs one small square matrix per head instead of the projected outputs.
        squares = torch.einsum("whi,whj->hij", weight, weight)
        norms = (
            torch.einsum("sthi,hij,sthj->sth", output, squares, output).clamp_min(0).sqrt().double()
        )
        self.means[site] = ((norms * real[..., None]).sum(dim=1) / real.sum(dim=1)[:, None]).cpu()
        return output


def estimate(inputs: EstimateInputs) -> Estimate:
    """Heads that add longer vectors to the residual stream count as more important."""
    model, task, prepared, heads = inputs.model, inputs.task, inputs.prepared, inputs.heads
    norms = output_norms(model, task, prepared, heads, inputs.config.batch_size)
    if norms is None:
        inputs.log(
            "note: this family's heads have no output projection that is a module, so no norms"
        )
        return Estimate(heads)
    moments = Moments((len(heads),))
    moments.add(norms)
    return Estimate(heads, rows_of(heads, "output-norm", moments), {"output-norm": norms})
