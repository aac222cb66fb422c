"""Gradient importances (Michel et al. 2019), from one backward pass over the data.

Every head's output is multiplied by a gate with the value 1, one for each example and token. The `term` of an example
is the derivative of its loss with respect to the head's gates, summed over tokens. All statistics follow from these
terms:

gradient           minus the mean term: the first-order prediction of the change of loss when the head is ablated
gradient-absolute  the mean over examples of |term| (Michel's paper)
gradient-tokens    the mean of the absolute derivative, over the tokens that the loss depends on (Michel's code)
gradient-fisher    half the mean of term² (Kwon et al. 2022)
gradient-second    gradient + gradient-fisher: the diagonal second-order expansion
gradient-batch     the mean over batches of |mean term| (TextPruner)

Signed statistics predict the change by an exact ablation. Absolute ones measure how sensitive the loss is to a head;
they cannot tell whether ablating it raises or lowers the loss.
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
from headscope.tasks.base import Task
from headscope.tasks.inference import answers, report_out_of_memory, sites_in_use
from headscope.tasks.prepared import Prepared, batch_of, plan_batches, sequences_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFINITIONS = {
    "gradient": Definition(
        "nats",
        "Change of loss predicted by the gradient",
        "Prediction of the change of loss when the head is ablated, to first order: minus the mean derivative of the "
        "loss with respect to a factor on the head's output.",
    ),
    "gradient-absolute": Definition(
        "nats",
        "Gradient importance per example",
        "Absolute derivative of an example's loss with respect to a factor on the head's output, averaged over "
        "examples (Michel's paper).",
    ),
    "gradient-tokens": Definition(
        "nats",
        "Gradient importance per token",
        "Absolute derivative of the loss with respect to a factor on the head's output at one token, averaged over "
        "tokens (Michel's code).",
    ),
    "gradient-fisher": Definition(
        "nats",
        "Fisher information",
        "Half the mean square of the derivative of an example's loss with respect to a factor on the head's output.",
    ),
    "gradient-second": Definition(
        "nats",
        "Change of loss predicted to second order",
        "The first-order prediction plus the Fisher information.",
    ),
    "gradient-batch": Definition(
        "nats",
        "Gradient importance per batch",
        "Derivative of the loss with respect to a factor on the head's output: the absolute value of its mean over a "
        "batch of 32 examples, averaged over batches (TextPruner).",
    ),
}
COST = BACKWARD

Progress = Callable[[int, int], None]
GROUP = 32  # examples per batch of the statistic gradient-batch


@dataclass
class Terms:
    """Derivatives of the loss with respect to the gates, for every item and head.

    signed    [item, head]: summed over tokens
    absolute  [item, head]: absolute values, summed over tokens
    tokens    [item, head]: number of tokens with a derivative at the head's site
    """

    heads: tuple[Head, ...]
    signed: NDArray[np.float64]
    absolute: NDArray[np.float64]
    tokens: NDArray[np.float64]

    def importances(self, *, normalized: bool = False) -> dict[str, Importance]:
        """All statistics. normalized: divide by the l2 norm of the layer's importances, an option of Michel's code."""
        result: dict[str, Importance] = {
            name: values / (self._layer_norms(values.mean(axis=0)) if normalized else 1.0)
            for name, values in self._by_item().items()
        }
        scale = self._layer_norms(self._by_batch().mean(axis=0)) if normalized else 1.0
        result["gradient-batch"] = lambda items: self._by_batch(items).mean(axis=0) / scale
        return result

    def _by_item(self) -> dict[str, NDArray[np.float64]]:
        """[item, head]: the statistics whose importance is the mean over items."""
        return {
            "gradient": -self.signed,
            "gradient-absolute": np.abs(self.signed),
            "gradient-tokens": self.absolute / np.maximum(self.tokens.mean(axis=0), 1e-30),
            "gradient-fisher": 0.5 * self.signed**2,
            "gradient-second": -self.signed + 0.5 * self.signed**2,
        }

    def _by_batch(self, items: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """[batch, head]: |mean term| in each batch of GROUP consecutive items; all items by default."""
        signed = self.signed if items is None else self.signed[items]
        starts = range(0, len(signed), GROUP)
        return np.stack([np.abs(signed[start : start + GROUP].mean(axis=0)) for start in starts])

    def _layer_norms(self, importance: NDArray[np.float64]) -> NDArray[np.float64]:
        """[head]: the l2 norm of the importances of its layer."""
        sites = np.array([str(head.site) for head in self.heads])
        norms = [float(np.linalg.norm(importance[sites == site])) for site in sites]
        return np.asarray(np.maximum(norms, 1e-20))

    def sum_over_units(self, units: Sequence[tuple[Head, ...]]) -> Terms:
        """Terms summed over units of heads that are pruned together, in the column of the unit's first head.

        Units whose first head has no term are left out.
        """
        index = {head: i for i, head in enumerate(self.heads)}
        present = [unit for unit in units if unit[0] in index]
        columns = [[index[head] for head in unit if head in index] for unit in present]
        signed, absolute, tokens = (
            np.stack([table[:, unit].sum(axis=1) for unit in columns], axis=1)
            for table in (self.signed, self.absolute, self.tokens)
        )
        return Terms(tuple(unit[0] for unit in present), signed, absolute, tokens)

    def rows(self, *, normalized: bool = False) -> list[Row]:
        """Rows of heads.csv: all statistics with intervals over items; those of gradient-batch are over batches."""
        rows = []
        for name, values in (self._by_item() | {"gradient-batch": self._by_batch()}).items():
            moments = Moments((len(self.heads),))
            moments.add(values / self._layer_norms(values.mean(axis=0)) if normalized else values)
            rows += rows_of(self.heads, name, moments)
        return rows


class _Gates(Edit):
    """Multiplies head outputs by gates that require gradients: [sequence, token, head], 1, or 0 for removed heads."""

    def __init__(self, removed: Collection[Head] = ()) -> None:
        self.gates: dict[Site, Tensor] = {}
        self.removed = {
            head.site: [h.head for h in removed if h.site == head.site] for head in removed
        }

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        gate = torch.ones(output.shape[:3], dtype=output.dtype, device=output.device)
        gate[:, :, [site.index_of(head) for head in self.removed.get(site, ())]] = 0.0
        self.gates[site] = gate.requires_grad_()
        return output * gate[..., None]


def gradient_terms(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    batch_size: int = 32,
    self_labels: bool = False,
    removed: Collection[Head] = (),
    progress: Progress = lambda done, total: None,
) -> Terms:
    """The terms of all items.

    self_labels  use the model's own predictions as labels
    removed      heads that are ablated; their terms predict the effect of switching them on again
    """
    model.check_evaluating()
    if self_labels:
        prepared = task.with_predicted_labels(
            answers(model, task, prepared, batch_size=batch_size), prepared
        )
    # If an example has several sequences, these need not be in one batch: the gradient is computed by the chain rule
    # through the answers, from dLoss/dAnswer of all sequences and dAnswer/dGate of one batch at a time.
    outer = None if prepared.is_one_to_one else _answer_gradients(model, task, prepared, batch_size)
    sites = sites_in_use(model, task, prepared)
    heads = tuple(head for head in model.heads if head.site in sites)
    signed = np.zeros((len(prepared.sequences), len(heads)))
    absolute = np.zeros_like(signed)
    tokens = np.zeros_like(signed)
    trained = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    done = 0
    for parameter in trained:
        parameter.requires_grad_(False)  # only the gates need gradients
    try:
        for numbers in plan_batches(prepared, batch_size):
            batch = batch_of(model, prepared, numbers)
            gates = _Gates(removed)
            with torch.enable_grad(), model.edited(gates), report_out_of_memory(batch_size):
                answer = task.extract_answers(task.call(model, batch), batch, prepared)
                if outer is None:
                    total = task.losses(answer, prepared, numbers).sum()
                else:
                    total = (answer * outer[numbers].to(answer)).sum()
                gradients = torch.autograd.grad(total, list(gates.gates.values()))
            by_site = dict(zip(gates.gates, gradients, strict=True))
            sums = _sum_over_tokens(model, by_site, heads)
            signed[numbers], absolute[numbers], tokens[numbers] = sums
            done += len(numbers)
            progress(done, len(prepared.sequences))
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
    return _sum_over_sequences(Terms(heads, signed, absolute, tokens), prepared)


def _answer_gradients(
    model: AttentionModel, task: Task, prepared: Prepared, batch_size: int
) -> Tensor:
    """[sequence, …]: the derivative of the total loss with respect to the answer of each sequence."""
    answer = answers(model, task, prepared, batch_size=batch_size).clone().requires_grad_()
    items = range(len(prepared.items))
    with torch.enable_grad():
        total = task.losses(answer[sequences_of(prepared, items)], prepared, items).sum()
        (gradients,) = torch.autograd.grad(total, answer)
    return gradients


def _sum_over_tokens(
    model: AttentionModel, by_site: dict[Site, Tensor], heads: tuple[Head, ...]
) -> tuple[NDArray[np.float64], ...]:
    """[sequence, head] of one batch: gradients summed over tokens, signed and absolute, and the number of tokens.

    Tokens that the loss does not depend on at a site are not counted, e.g. all except the first in the last layer of a
    classifier that reads [CLS].
    """
    gradients = {site: g.double().cpu().numpy() for site, g in by_site.items()}
    counts = {site: (g != 0).any(axis=2).sum(axis=1) for site, g in gradients.items()}
    by_head = [gradients[head.site][:, :, model.index_of(head)] for head in heads]
    return (
        np.stack([g.sum(axis=1) for g in by_head], axis=1),
        np.stack([np.abs(g).sum(axis=1) for g in by_head], axis=1),
        np.stack([counts[head.site] for head in heads], axis=1),
    )


def _sum_over_sequences(terms: Terms, prepared: Prepared) -> Terms:
    """Terms of items, as sums over their sequences. A sequence's terms are divided equally among its items."""
    if prepared.is_one_to_one:
        return terms
    users = np.bincount(
        [n for part in prepared.parts for n in part], minlength=len(prepared.sequences)
    )
    parts = [list(part) for part in prepared.parts]
    signed, absolute, tokens = (
        np.stack([(table[part].T / users[part]).T.sum(axis=0) for part in parts])
        for table in (terms.signed, terms.absolute, terms.tokens)
    )
    return Terms(terms.heads, signed, absolute, tokens)


def estimate(inputs: EstimateInputs) -> Estimate:
    """All gradient statistics."""
    config = inputs.config
    result = compute_terms(inputs, self_labels=config.self_labels)
    if inputs.units:
        result = result.sum_over_units(inputs.units)
    rows = result.rows(normalized=config.normalized)
    return Estimate(result.heads, rows, result.importances(normalized=config.normalized))


def compute_terms(inputs: EstimateInputs, *, self_labels: bool = False) -> Terms:
    """The gradient terms; not computed again if a sequential test has computed them."""
    if inputs.terms is not None and not self_labels:
        return inputs.terms
    inputs.log("gradients")
    return gradient_terms(
        inputs.model,
        inputs.task,
        inputs.prepared,
        batch_size=inputs.config.batch_size,
        self_labels=self_labels,
        progress=inputs.progress,
    )
