"""How much of what the model says came through each head? Relevance, in the manner of Voita, and AttnLRP's.

What the model says of a sequence (its largest logit, say) is shared out among everything it was made of, in one
backward pass under the rules of `model.relevance.rules`. A head's relevance is what went through its output at all
tokens: what would be missing without the head if nothing else reacted to that.

relevance         the mean over sequences of a head's share of its layer's, by absolute values
relevance-signed  the mean of its relevance, for the mean size of what the model says; below 0: it speaks against it

The heads of a layer do not add up to all: the rest goes by the layer, in the residual stream. `layers` has both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from headscope.tasks.base import Prepared, Task, batch_of, plan_batches
from headscope.tasks.inference import answers, report_out_of_memory, sites_in_use

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFINITIONS = {
    "relevance": Definition(
        "share",
        "Relevance",
        "The head's share of its layer's relevance for what the model says, by absolute values.",
    ),
    "relevance-signed": Definition(
        "number",
        "Signed relevance",
        "How much of what the model says came through the head; below 0: against it.",
    ),
}
COST = BACKWARD

Progress = Callable[[int, int], None]
PARTS = ("leaves", "enters", "heads", "cross-heads", "biases", "source", "lost")


@dataclass
class Relevances:
    """Of a task's examples.

    said    [sequence]: what is shared out
    signed  [sequence, head]: how much of it came through each head
    layers  {(stack, layer, part): [sequence]}: where it went (docs/relevance.md)
    """

    heads: tuple[Head, ...]
    said: NDArray[np.float64]
    signed: NDArray[np.float64]
    layers: dict[tuple[str, int, str], NDArray[np.float64]]
    parts: list[tuple[int, ...]]

    def importances(self) -> dict[str, Importance]:
        """[item, head] of both; the mean of an item's sequences."""
        found = {"relevance": self.shares(), "relevance-signed": self._of_size(self.signed)}
        return {
            name: np.stack([table[list(part)].mean(axis=0) for part in self.parts])
            for name, table in found.items()
        }

    def shares(self) -> NDArray[np.float64]:
        """[sequence, head]: the part of its site's relevance, by absolute values; 0 where the site has none."""
        size = np.abs(self.signed)
        sites = np.array([str(head.site) for head in self.heads])
        same = (sites[:, None] == sites[None]).astype(float)
        found: NDArray[np.float64] = size / np.maximum(size @ same, 1e-300)
        return found

    def sum_over_units(self, units: Sequence[tuple[Head, ...]]) -> Relevances:
        """What goes together as one head, the first of a unit at each site: added up before any absolute value."""
        unit_of = {head: unit for unit in units for head in unit}
        columns: dict[Head, list[int]] = {}
        for place, head in enumerate(self.heads):
            first = next(one for one in unit_of.get(head, (head,)) if one.site == head.site)
            columns.setdefault(first, []).append(place)
        signed = np.stack(
            [self.signed[:, places].sum(axis=1) for places in columns.values()], axis=1
        )
        return Relevances(tuple(columns), self.said, signed, self.layers, self.parts)

    def rows(self) -> list[Row]:
        """Both of every head with their intervals, for heads.csv."""
        found = []
        for name, values in self.importances().items():
            assert isinstance(values, np.ndarray)
            moments = Moments((len(self.heads),))
            moments.add(values)
            found += rows_of(self.heads, name, moments, is_share=name == "relevance")
        return found

    def layer_rows(self) -> list[TableRow]:
        """For relevance_layers.csv: each part for the size of what the model says, with the interval of a ratio."""
        rows: list[TableRow] = []
        size = np.abs(self.said) / max(np.abs(self.said).mean(), 1e-300)
        for (stack, layer, part), values in self.layers.items():
            found = self._of_size(values[:, None])[:, 0]
            moments = Moments((1,))
            moments.add((found - found.mean() * (size - 1))[:, None])
            (row,) = rows_of((Head(stack, layer, 0),), part, moments)
            rows.append(
                {"stack": stack, "layer": layer, "part": part}
                | {name: getattr(row, name) for name in ("value", "low", "high", "count")}
            )
        return rows

    def _of_size(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """For the mean size, not each for its own: one that is near 0 would outweigh all others."""
        found: NDArray[np.float64] = (
            table * np.sign(self.said)[:, None] / max(np.abs(self.said).mean(), 1e-300)
        )
        return found


def relevances(
    model: AttentionModel,
    task: Task,
    prepared: Prepared,
    *,
    rules: Rules = "voita",
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Relevances:
    """The relevances of all sequences of a task, each for one thing that the model says of it.

    seed  of the place that is asked, in sequences where there are several
    """
    model.check_evaluating()
    check_supported(model)
    known = answers(model, task, prepared, batch_size=batch_size) if task.compares else None
    sites = sites_in_use(model, task, prepared)
    heads = tuple(head for head in model.heads if head.site in sites)
    count = len(prepared.sequences)
    found = Relevances(heads, np.zeros(count), np.zeros((count, len(heads))), {}, prepared.parts)
    done = 0
    for numbers in plan_batches(prepared, batch_size):
        batch = batch_of(model, prepared, numbers)
        accounts = RelevanceSums(model, len(numbers))
        with report_out_of_memory(batch_size), linearise(model, rules, accounts), accounts.follow():
            said = task.relevance_target(model, batch, prepared, seed=seed, answers=known)
            accounts.backward(said)
        if rules == "voita":
            check_adds_up(model, accounts, said)
        _enter(found, model, accounts, said.detach(), numbers)
        done += len(numbers)
        progress(done, count)
    if not np.isfinite(found.signed).all():
        raise HeadscopeError(
            "some relevances are not finite", where=model.name, fix="Load it with dtype float64"
        )
    return found


def _enter(
    found: Relevances,
    model: AttentionModel,
    accounts: RelevanceSums,
    said: Tensor,
    numbers: list[int],
) -> None:
    """Write one batch's accounts at its sequences' places."""
    found.said[numbers] = said.double().cpu().numpy()
    for place, head in enumerate(found.heads):
        if head.site in accounts.heads:
            found.signed[numbers, place] = (
                accounts.heads[head.site][:, :, model.index_of(head)].sum(dim=1).numpy()
            )
    for key, values in balance(accounts, said).items():
        found.layers.setdefault(key, np.zeros(len(found.said)))[numbers] = values.numpy()


def balance(accounts: RelevanceSums, said: Tensor) -> dict[tuple[str, int, str], Tensor]:
    """{(stack, layer, part): [sequence]}: what leaves a layer, and where it came from.

    leaves = enters + biases + source + lost, of which heads (and cross-heads) are what came through attention
    """
    found: dict[tuple[str, int, str], Tensor] = {}
    nothing = torch.zeros(accounts.sequences, dtype=torch.float64)
    for stack, layers in accounts.layers().items():
        is_last = stack == accounts.stacks[-1]
        top = said.double().cpu() if is_last else sum(accounts.source.values(), nothing)
        for layer in (*range(layers, -1, -1), -1):
            step = (stack, layer)
            leaves = top if layer == layers else accounts.leaving(step)
            enters = accounts.entering(step)
            biases, source = accounts.biases.get(step, nothing), accounts.source.get(step, nothing)
            values = {"leaves": leaves, "enters": enters, "biases": biases}
            values |= {"source": source} if step in accounts.source else {}
            values["lost"] = leaves - enters - biases - source
            for site, of_heads in accounts.heads.items():
                if (
                    site.layer == layer
                    and site.stack in (stack, "cross")
                    and (site.stack == stack or is_last)
                ):
                    name = "cross-heads" if site.stack == "cross" else "heads"
                    values[name] = of_heads.sum(dim=(1, 2))
            found |= {(stack, layer, part): values[part] for part in PARTS if part in values}
    return found


def estimate(inputs: EstimateInputs) -> Estimate:
    rules = inputs.config.rules or "voita"
    inputs.log(f"relevance by the rules of {rules}")
    result = relevances(
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
