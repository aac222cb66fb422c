"""What does a first look predict? Importances from one backward pass over the data.

A gate of 1 stands behind every head, for every example and token by itself; the loss' derivative by it, `term`, says
what happens to this example's loss when the head is turned up. Everything is derived from these terms:

gradient         minus the mean term: the first-order prediction of the change of loss when the head is removed
gradient-absolute  the mean of |term| an example (Michel's paper)
gradient-tokens  the mean over tokens of |term| a token, of those that the loss depends on (Michel's code)
gradient-fisher  half the mean of term² (Kwon)
gradient-second  gradient + gradient-fisher: what the second-order expansion keeps
gradient-batch   the mean over batches of |mean term| (TextPruner)

Signed predictions can be compared with exact removal; absolute ones measure sensitivity, not damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headscope.ablation.agreement import Importance
from headscope.ablation.estimates import BACKWARD, Estimate, EstimateInputs
from headscope.heads import Head, Site
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.statistics.base import Definition
from headscope.tables import Moments, Row, rows_of
from headscope.tasks.base import Prepared, Task, batch_of, plan_batches, sequences_of
from headscope.tasks.inference import answers, report_out_of_memory, sites_in_use

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFINITIONS = {
    "gradient": Definition(
        "nats",
        "Change of loss predicted by the gradient",
        "First-order prediction of the change of loss.",
    ),
    "gradient-absolute": Definition(
        "nats",
        "Sensitivity an example",
        "Mean over examples of the gradient's absolute term (Michel's paper).",
    ),
    "gradient-tokens": Definition(
        "nats",
        "Sensitivity a token",
        "Mean over tokens of the gradient's absolute term (Michel's code).",
    ),
    "gradient-fisher": Definition(
        "nats", "Fisher information", "Half the mean square of the gradient's term."
    ),
    "gradient-second": Definition(
        "nats",
        "Change of loss predicted to second order",
        "The gradient's prediction plus the Fisher term.",
    ),
    "gradient-batch": Definition(
        "nats",
        "Sensitivity a batch",
        "Mean over batches of 32 of the absolute mean term (TextPruner).",
    ),
}
COST = BACKWARD

Progress = Callable[[int, int], None]
GROUP = 32  # examples in one of gradient-batch's batches


@dataclass
class Terms:
    """Of every item and head: the signed derivative of its loss, and the sum over tokens of its absolute values.

    signed, absolute, tokens  [item, head], in the order of `heads`; tokens: how many have a derivative at this site
    """

    heads: tuple[Head, ...]
    signed: NDArray[np.float64]
    absolute: NDArray[np.float64]
    tokens: NDArray[np.float64]

    def importances(self, *, normalized: bool = False) -> dict[str, Importance]:
        """Each variant. normalized: by the l2 norm of the layer's importances (Michel's option)."""
        found = self._means()
        scales = {
            name: self._scale(values.mean(axis=0)) if normalized else 1.0
            for name, values in found.items()
        }
        scale = self._scale(self._batches().mean(axis=0)) if normalized else 1.0
        return {name: values / scales[name] for name, values in found.items()} | {
            "gradient-batch": lambda draw: self._batches(draw).mean(axis=0) / scale
        }

    def _means(self) -> dict[str, NDArray[np.float64]]:
        """[item, head] of the variants whose importance is the mean over items."""
        return {
            "gradient": -self.signed,
            "gradient-absolute": np.abs(self.signed),
            "gradient-tokens": self.absolute / np.maximum(self.tokens.mean(axis=0), 1e-30),
            "gradient-fisher": 0.5 * self.signed**2,
            "gradient-second": -self.signed + 0.5 * self.signed**2,
        }

    def _batches(self, items: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """[batch, head]: |mean term| of each GROUP of these items, in their order."""
        signed = self.signed if items is None else self.signed[items]
        starts = range(0, len(signed), GROUP)
        return np.stack([np.abs(signed[start : start + GROUP].mean(axis=0)) for start in starts])

    def _scale(self, importance: NDArray[np.float64]) -> NDArray[np.float64]:
        """[head]: the l2 norm of the importances of its layer."""
        everywhere = list(dict.fromkeys(head.site for head in self.heads))
        sites = np.array([everywhere.index(head.site) for head in self.heads])
        norms = np.array([float(np.linalg.norm(importance[sites == site])) for site in sites])
        scale: NDArray[np.float64] = np.maximum(norms, 1e-20)
        return scale

    def sum_over_units(self, units: Sequence[tuple[Head, ...]]) -> Terms:
        """Terms of units that are pruned together, each under its first head; units without a term are left out."""
        index = {head: i for i, head in enumerate(self.heads)}
        present = [unit for unit in units if unit[0] in index]
        columns = [[index[head] for head in unit if head in index] for unit in present]
        signed, absolute, tokens = (
            np.stack([table[:, unit].sum(axis=1) for unit in columns], axis=1)
            for table in (self.signed, self.absolute, self.tokens)
        )
        return Terms(tuple(unit[0] for unit in present), signed, absolute, tokens)

    def rows(self, *, normalized: bool = False) -> list[Row]:
        """Every variant of every head with its interval, for heads.csv; of gradient-batch over batches."""
        found = []
        for name, values in (self._means() | {"gradient-batch": self._batches()}).items():
            moments = Moments((len(self.heads),))
            moments.add(values / self._scale(values.mean(axis=0)) if normalized else values)
            found += rows_of(self.heads, name, moments)
        return found


class _Gates(Edit):
    """A gate of 1 for every sequence, token and head, of which the gradient is wanted; 0 for those taken away."""

    def __init__(self, removed: Collection[Head] = ()) -> None:
        self.gates: dict[Site, Tensor] = {}
        self.removed = {
            head.site: [one.head for one in removed if one.site == head.site] for head in removed
        }

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        gate = torch.ones(output.shape[:3], dtype=output.dtype, device=output.device)
        gate[:, :, [site.index_of(head) for head in self.removed.get(site, ())]] = 0.0
        self.gates[site] = gate.requires_grad_()
        return output * gate[..., None]


def terms(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    labels_free: bool = False,
    removed: Collection[Head] = (),
    progress: Progress = lambda done, total: None,
) -> Terms:
    """The terms of all items.

    labels_free  of the loss against what the model itself says, not what is right
    removed      heads that are switched off: their terms say what switching them on would do
    """
    model.check_evaluating()
    if labels_free:
        prepared = task.with_predicted_labels(
            answers(model, task, prepared, batch_size=batch_size), prepared
        )
    slopes = None if prepared.is_one_to_one else _slopes(model, task, prepared, batch_size)
    sites = sites_in_use(model, task, prepared)
    heads = tuple(head for head in model.heads if head.site in sites)
    signed = np.zeros((len(prepared.sequences), len(heads)))
    absolute = np.zeros_like(signed)
    tokens = np.zeros_like(signed)
    trained = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    done = 0
    for parameter in trained:
        parameter.requires_grad_(False)  # the weights' own gradients are not wanted
    try:
        for numbers in plan_batches(prepared, batch_size):
            batch = batch_of(model, prepared, numbers)
            gates = _Gates(removed)
            with torch.enable_grad(), model.edited(gates), report_out_of_memory(batch_size):
                found = task.extract_answers(task.call(model, batch), batch, prepared)
                total = (
                    task.losses(found, prepared, numbers).sum()
                    if slopes is None
                    else (found * slopes[numbers].to(found)).sum()
                )
                slopes_here = torch.autograd.grad(total, list(gates.gates.values()))
            gathered = _gathered(model, dict(zip(gates.gates, slopes_here, strict=True)), heads)
            signed[numbers], absolute[numbers], tokens[numbers] = gathered
            done += len(numbers)
            progress(done, len(prepared.sequences))
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
    return _of_items(Terms(heads, signed, absolute, tokens), prepared)


def _slopes(model: AttentionModel, task: Task, prepared: Prepared, batch_size: int) -> Tensor:
    """The derivative of all losses by every sequence's answer, where examples are made of several sequences."""
    found = answers(model, task, prepared, batch_size=batch_size).clone().requires_grad_()
    everyone = range(len(prepared.items))
    with torch.enable_grad():
        total = task.losses(found[sequences_of(prepared, everyone)], prepared, everyone).sum()
        (slopes,) = torch.autograd.grad(total, found)
    return slopes


def _gathered(
    model: AttentionModel, slopes: dict[Site, Tensor], heads: tuple[Head, ...]
) -> tuple[NDArray[np.float64], ...]:
    """[sequence, head] of one batch: the gates' gradients summed over tokens, signed and absolute, and the tokens.

    Tokens that the loss does not depend on at a site are not counted: all but the first in a classifier's last layer.
    """
    known = {site: slope.double().cpu().numpy() for site, slope in slopes.items()}
    reached = {site: (slope != 0).any(axis=2).sum(axis=1) for site, slope in known.items()}
    of_heads = [known[head.site][:, :, model.index_of(head)] for head in heads]
    return (
        np.stack([one.sum(axis=1) for one in of_heads], axis=1),
        np.stack([np.abs(one).sum(axis=1) for one in of_heads], axis=1),
        np.stack([reached[head.site] for head in heads], axis=1),
    )


def _of_items(found: Terms, prepared: Prepared) -> Terms:
    """Sequences' terms added up to items'; a sequence that several items share is shared out evenly."""
    if prepared.is_one_to_one:
        return found
    users = np.bincount(
        [n for part in prepared.parts for n in part], minlength=len(prepared.sequences)
    )
    whole = [list(part) for part in prepared.parts]

    def added(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([(table[part].T / users[part]).T.sum(axis=0) for part in whole])

    return Terms(found.heads, added(found.signed), added(found.absolute), added(found.tokens))


def estimate(inputs: EstimateInputs) -> Estimate:
    """All variants of the gradient's prediction."""
    config = inputs.config
    result = compute_terms(inputs, labels_free=config.labels_free)
    if inputs.units:
        result = result.sum_over_units(inputs.units)
    rows = result.rows(normalized=config.normalized)
    return Estimate(result.heads, rows, result.importances(normalized=config.normalized))


def compute_terms(inputs: EstimateInputs, *, labels_free: bool = False) -> Terms:
    """Terms of the inputs; those that a sequential test needed are not computed again."""
    if inputs.terms is not None and not labels_free:
        return inputs.terms
    inputs.log("gradients")
    return terms(
        inputs.model,
        inputs.task,
        inputs.prepared,
        batch_size=inputs.config.batch_size,
        labels_free=labels_free,
        progress=inputs.progress,
    )
