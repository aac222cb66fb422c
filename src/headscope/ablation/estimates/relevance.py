"""Layer-wise relevance of heads, by the rules of Voita et al. (2019) or of AttnLRP.

One output per sequence, e.g. its largest logit, is redistributed to everything that contributed to it, in one backward
pass under the rules of `model.relevance.rules`. A head's relevance is the part that passes through its output, summed
over tokens. It is what the output would lose without the head if nothing else changed.

relevance         the head's share of its layer's relevance, by absolute values; mean over sequences
relevance-signed  the head's mean relevance, divided by the mean absolute output; below 0 if it works against the output

The relevances of a layer's heads do not add up to the output: the rest bypasses them in the residual stream. The table
relevance_layers.csv shows all parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headscope.ablation.agreement import Importance
from headscope.ablation.estimates import BACKWARD, Estimate, EstimateInputs
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.rules import Rules, linearise
from headscope.model.relevance.sums import RelevanceSums
from headscope.model.relevance.supported import check_adds_up, check_supported
from headscope.statistics.base import Definition
from headscope.tables import Moments, Row, TableRow, rows_of
from headscope.tasks.base import Task
from headscope.tasks.inference import answers, report_out_of_memory, sites_in_use
from headscope.tasks.prepared import Prepared, batch_of, plan_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFINITIONS = {
    "relevance": Definition(
        "share",
        "Relevance",
        "The head's share of its layer's relevance for the model's strongest output, by absolute values.",
    ),
    "relevance-signed": Definition(
        "number",
        "Signed relevance",
        "The part of the model's strongest output that came through the head; negative: it works against the output.",
    ),
}
COST = BACKWARD

Progress = Callable[[int, int], None]
PARTS = ("leaves", "enters", "heads", "cross-heads", "biases", "source", "lost")


@dataclass
class Relevances:
    """Relevances of a task's examples.

    outputs  [sequence]: the output that is redistributed
    signed   [sequence, head]: the part of it that passes through each head
    layers   {(stack, layer, part): [sequence]}: relevance of each of the PARTS (docs/explanation/relevance.md)
    parts    the indices of the sequences of each item
    """

    heads: tuple[Head, ...]
    outputs: NDArray[np.float64]
    signed: NDArray[np.float64]
    layers: dict[tuple[str, int, str], NDArray[np.float64]]
    parts: list[tuple[int, ...]]

    def importances(self) -> dict[str, Importance]:
        """[item, head] of both statistics: the mean over an item's sequences."""
        signed = self._relative_to_output(self.signed)
        return {
            name: np.stack([table[list(part)].mean(axis=0) for part in self.parts])
            for name, table in (("relevance", self.shares()), ("relevance-signed", signed))
        }

    def shares(self) -> NDArray[np.float64]:
        """[sequence, head]: the share of its site's relevance, by absolute values; 0 if the site has none."""
        size = np.abs(self.signed)
        sites = np.array([str(head.site) for head in self.heads])
        same_site = (sites[:, None] == sites[None]).astype(float)  # [head, head]
        return np.asarray(size / np.maximum(size @ same_site, 1e-300))

    def sum_over_units(self, units: Sequence[tuple[Head, ...]]) -> Relevances:
        """Relevances summed over units of heads that are pruned together, in the column of the unit's first head.

        A unit with heads at several sites has a column at each of them.
        """
        unit_of = {head: unit for unit in units for head in unit}
        columns: dict[Head, list[int]] = {}
        for i, head in enumerate(self.heads):
            first = next(other for other in unit_of.get(head, (head,)) if other.site == head.site)
            columns.setdefault(first, []).append(i)
        sums = [self.signed[:, indices].sum(axis=1) for indices in columns.values()]
        return replace(self, heads=tuple(columns), signed=np.stack(sums, axis=1))

    def rows(self) -> list[Row]:
        """Rows of heads.csv: both statistics of every head with their intervals."""
        rows = []
        for name, values in self.importances().items():
            assert isinstance(values, np.ndarray)
            moments = Moments((len(self.heads),))
            moments.add(values)
            rows += rows_of(self.heads, name, moments, is_share=name == "relevance")
        return rows

    def layer_rows(self) -> list[TableRow]:
        """Rows of relevance_layers.csv: the mean of each part divided by the mean absolute output, with intervals."""
        rows: list[TableRow] = []
        size = np.abs(self.outputs) / max(np.abs(self.outputs).mean(), 1e-300)
        for (stack, layer, part), values in self.layers.items():
            relative = self._relative_to_output(values[:, None])[:, 0]
            moments = Moments((1,))
            # Interval of a ratio of two means by the delta method
            moments.add((relative - relative.mean() * (size - 1))[:, None])
            rows.append({"stack": stack, "layer": layer, "part": part} | moments.summary((0,)))
        return rows

    def _relative_to_output(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """The table with the sign of each sequence's output, divided by the mean absolute output of all sequences.

        Not by each sequence's own output: a sequence with an output near 0 would outweigh all others.
        """
        scale = max(np.abs(self.outputs).mean(), 1e-300)
        return np.asarray(table * np.sign(self.outputs)[:, None] / scale)


def compute_relevances(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    rules: Rules = "voita",
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Relevances:
    """Relevances of all sequences of a task, for one output of each sequence.

    seed  random seed for the choice of a position, in sequences with an output at every position
    """
    model.check_evaluating()
    check_supported(model)
    predictions = answers(model, task, prepared, batch_size=batch_size) if task.compares else None
    sites = sites_in_use(model, task, prepared)
    heads = tuple(head for head in model.heads if head.site in sites)
    count = len(prepared.sequences)
    result = Relevances(heads, np.zeros(count), np.zeros((count, len(heads))), {}, prepared.parts)
    done = 0
    for numbers in plan_batches(prepared, batch_size):
        batch = batch_of(model, prepared, numbers)
        sums = RelevanceSums(model, len(numbers))
        with report_out_of_memory(batch_size), linearise(model, rules, sums), sums.follow():
            output = task.relevance_target(model, batch, prepared, seed=seed, answers=predictions)
            sums.backward(output)
        if rules == "voita":
            check_adds_up(model, sums, output)
        result.outputs[numbers] = output.detach().double().cpu().numpy()
        for i, head in enumerate(heads):
            if head.site in sums.heads:
                by_token = sums.heads[head.site][:, :, model.index_of(head)]
                result.signed[numbers, i] = by_token.sum(dim=1).numpy()
        for key, values in balance(sums, output.detach()).items():
            result.layers.setdefault(key, np.zeros(count))[numbers] = values.numpy()
        done += len(numbers)
        progress(done, count)
    if not np.isfinite(result.signed).all():
        raise HeadscopeError(
            "some relevances are not finite", where=model.name, fix="Load it with dtype float64"
        )
    return result


def balance(sums: RelevanceSums, output: Tensor) -> dict[tuple[str, int, str], Tensor]:
    """{(stack, layer, part): [sequence]}: the relevance at each layer, by where it comes from.

    leaves       the relevance of the layer's output; equal to enters + biases + source + lost
    enters       the part that comes from the layer's input
    biases       the part that comes from what is added independently of the input
    source       the part that comes from the encoder's output, through cross-attention
    lost         the rest: rounding errors, and with AttnLRP what its rule for the softmax drops
    heads, cross-heads  the part that passed through the outputs of attention heads
    """
    result: dict[tuple[str, int, str], Tensor] = {}
    zero = torch.zeros(sums.sequences, dtype=torch.float64)
    for stack, layers in sums.layers().items():
        is_last = stack == sums.stacks[-1]
        top = output.double().cpu() if is_last else sum(sums.source.values(), zero)
        for layer in (*range(layers, -1, -1), -1):
            step = (stack, layer)
            leaves = top if layer == layers else sums.leaving(step)
            enters = sums.entering(step)
            biases, source = sums.biases.get(step, zero), sums.source.get(step, zero)
            values = {"leaves": leaves, "enters": enters, "biases": biases}
            values |= {"source": source} if step in sums.source else {}
            values["lost"] = leaves - enters - biases - source
            stacks = {stack: "heads"} | ({"cross": "cross-heads"} if is_last else {})
            for site, by_head in sums.heads.items():
                if site.layer == layer and site.stack in stacks:
                    values[stacks[site.stack]] = by_head.sum(dim=(1, 2))
            result |= {(stack, layer, part): values[part] for part in PARTS if part in values}
    return result


def estimate(inputs: EstimateInputs) -> Estimate:
    rules = inputs.config.relevance_rules or "voita"
    inputs.log(f"relevance by the rules of {rules}")
    result = compute_relevances(
        inputs.model,
        inputs.task,
        inputs.prepared,
        rules=rules,
        batch_size=inputs.config.batch_size,
        seed=inputs.seed,
        progress=inputs.progress,
    )
    tables = {"relevance_layers": result.layer_rows()}
    if inputs.units:
        result = result.sum_over_units(inputs.units)
    return Estimate(result.heads, result.rows(), result.importances(), tables)
