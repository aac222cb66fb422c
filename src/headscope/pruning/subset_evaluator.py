"""Effect of removing sets of heads on the performance at a task, on the selection split.

The children of a set are the sets with one more head. They are evaluated by exact ablation (`ablation.sweep`) on the
model that is pruned to the set, where the layers below an ablated head are computed once for all children. If only the
best few children are needed, others are dropped after an eighth, a quarter or a half of the examples.

Searches remove units: a head, or heads that share weights and can only be pruned together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.ablation.ablation_targets import Variant
from headscope.ablation.estimates import BACKWARD
from headscope.ablation.estimates.gradient import gradient_terms
from headscope.ablation.sweep import Sweep
from headscope.config.checks import check_choice
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import prune, units
from headscope.tasks.base import Judged, Task
from headscope.tasks.inference import evaluate, sites_in_use
from headscope.tasks.prepared import Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

Objective = Literal["loss", "metric"]
OBJECTIVES = ("loss", "metric")
Removed = frozenset[int]  # indices of the removed units
STANDARD_ERRORS = 2.0  # a candidate that is worse by more standard errors is dropped
FEWEST = 32  # no candidate is dropped before this number of examples
GUIDE = 128  # examples for predictions; few are enough, since predictions only select candidates


@dataclass(frozen=True)
class Outcome:
    """Performance without a set of heads: mean loss in nats, metric, and the number of examples evaluated."""

    loss: float
    metric: float
    examples: int


@dataclass(frozen=True)
class SubsetState:
    """A set of removed units, and the performance without it."""

    removed: Removed
    outcome: Outcome


class Memory:
    """Results by key, each computed once. This class keeps them in memory; `JournalMemory` also writes them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def compute_once(self, key: str, compute: Callable[[], Any]) -> Any:
        """The stored value. If there is none, it is computed and stored."""
        if key not in self._values:
            self.add(key, compute())
        return self._values[key]

    def add(self, key: str, value: Any) -> None:
        self._values[key] = value


@dataclass(frozen=True)
class EvaluationOptions:
    """Which sets of heads may be removed, and how they are evaluated.

    objective   what a set of heads should keep: the loss or the metric
    at_least    minimum number of heads to keep per layer
    among       the heads that may be removed; None: all
    max_length  maximum length of examples, in tokens
    """

    objective: Objective = "loss"
    at_least: int = 0
    among: HeadSet | None = None
    max_length: int | None = None
    batch_size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.objective, OBJECTIVES, "`objective`", "is not an objective")


class SubsetEvaluator:
    """Evaluates sets of removed heads on the selection split.

    units   the units that can be removed, among those that the task uses
    intact  the outcome of the unpruned model
    guide   a sample of the examples, for predictions
    tried   the outcome of every evaluated set, on the most examples, in order of first evaluation
    spent   cost so far, in evaluations of one set on all examples; a backward pass counts as three
    """

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        options: EvaluationOptions | None = None,
        memory: Memory | None = None,
    ) -> None:
        options = options or EvaluationOptions()
        self.model, self.task, self.prepared = model, task, prepared
        self.objective, self.at_least = options.objective, options.at_least
        self.batch_size, self.seed = options.batch_size, options.seed
        self.memory = memory or Memory()
        self.guide = prepared
        if len(prepared.items) > GUIDE:
            sample = np.random.default_rng(self.seed).permutation(len(prepared.items))[:GUIDE]
            few = [prepared.items[i] for i in sorted(sample)]
            self.guide = task.prepare(model, few, max_length=options.max_length)
        self.sites = set(sites_in_use(model, task, prepared))
        self.units = [
            unit for unit in units(model) if any(head.site in self.sites for head in unit)
        ]
        if (among := options.among) is not None:
            self.units = [unit for unit in self.units if all(head in among for head in unit)]
        if not self.units:
            raise HeadscopeError(
                "none of these heads can be cut alone",
                where="`candidates`",
                expected="heads that the task uses, as 3.2,4.*",
            )
        self.tried: dict[Removed, Outcome] = {}
        self.spent = 0.0
        self._method: str | None = None  # method of the sweep, chosen at its first use
        self._predictions: dict[Removed, NDArray[np.float64]] = {}
        self._cut: tuple[Removed, AttentionModel] = (frozenset(), model)
        self.intact = self.evaluate(frozenset())

    @property
    def count(self) -> int:
        return len(self.prepared.items)

    # Sets

    def heads(self, removed: Iterable[int]) -> HeadSet:
        """The heads of these units."""
        return HeadSet(
            [head for unit in removed for head in self.units[unit]], among=self.model.heads
        )

    def size(self, removed: Iterable[int]) -> int:
        """The number of heads of these units."""
        return sum(len(self.units[unit]) for unit in removed)

    def candidates(self, removed: Removed) -> list[int]:
        """The units that may be removed next: every layer keeps `at_least` heads, and the model keeps one."""
        remaining = Counter(head.site for head in self.model.heads)
        for unit in removed:
            remaining.subtract(head.site for head in self.units[unit])

        def is_candidate(unit: Sequence[Head]) -> bool:
            counts = Counter(head.site for head in unit)
            fits = all(remaining[site] - counts[site] >= self.at_least for site in counts)
            return fits and len(unit) < remaining.total()

        return [i for i, unit in enumerate(self.units) if i not in removed and is_candidate(unit)]

    def cost(self, outcome: Outcome) -> float:
        """The loss, or minus the metric, by the objective: lower is better. Infinite if undefined."""
        value = outcome.loss if self.objective == "loss" else -outcome.metric
        return value if np.isfinite(value) else np.inf

    # Effects of sets

    def cut_model(self, removed: Removed) -> AttentionModel:
        """The model without these units; the last result is cached."""
        if self._cut[0] != removed:
            heads = list(self.heads(removed))
            self._cut = removed, prune(self.model, heads) if heads else self.model
        return self._cut[1]

    def evaluate(self, removed: Removed) -> Outcome:
        """Evaluate a set on all examples."""
        if removed in self.tried and self.tried[removed].examples == self.count:
            return self.tried[removed]
        stored = self.memory.compute_once(
            f"evaluate {sorted(removed)}",
            lambda: asdict(self._evaluate_model(self.cut_model(removed))),
        )
        return self._record_outcome(removed, Outcome(**stored), 1.0)

    def evaluate_trained(self, removed: Removed, model: AttentionModel) -> Outcome:
        """Evaluate a set with a model that was trained after these units were cut."""
        return self._record_outcome(removed, self._evaluate_model(model), 1.0)

    def children(
        self, removed: Removed, candidates: Sequence[int], *, keep: int | None = None
    ) -> list[SubsetState]:
        """The sets with one more unit, best first.

        keep  number of sets that are needed; others may be dropped before all examples are run. None: all are needed
        """
        if not candidates:
            return []
        stored = self.memory.compute_once(
            f"children {sorted(removed)} {list(candidates)} {keep}",
            lambda: [
                asdict(outcome) for outcome in self._evaluate_children(removed, candidates, keep)
            ],
        )
        states = []
        for unit, values in zip(candidates, stored, strict=True):
            state = SubsetState(removed | {unit}, Outcome(**values))
            self._record_outcome(state.removed, state.outcome, state.outcome.examples / self.count)
            states.append(state)

        def rank(state: SubsetState) -> tuple[int, float, list[int]]:
            # Sets that were dropped come last, whatever their cost on a few examples.
            examples = state.outcome.examples
            return -examples, self.cost(state.outcome), sorted(state.removed)

        return sorted(states, key=rank)

    def predict_changes(self, removed: Removed) -> NDArray[np.float64]:
        """[unit]: predicted change of loss if the unit is removed or, if it is removed already, restored.

        Predicted to second order, on the examples of `guide`. The first order alone is wrong for the most important
        heads, for which the loss is strongly curved.
        """
        if removed not in self._predictions:
            changes = self.memory.compute_once(
                f"slopes {sorted(removed)}", lambda: self._compute_predictions(removed)
            )
            self.spent += BACKWARD * len(self.guide.items) / self.count
            self._predictions[removed] = np.array(changes)
        return self._predictions[removed]

    def _compute_predictions(self, removed: Removed) -> list[float]:
        off = list(self.heads(removed))
        terms = gradient_terms(
            self.model, self.task, self.guide, batch_size=self.batch_size, removed=off
        )
        column = {head: terms.signed[:, i] for i, head in enumerate(terms.heads)}
        zero = np.zeros(len(terms.signed))
        changes = []
        for unit in self.units:
            signed = (column.get(head, zero) * (1 if head in off else -1) for head in unit)
            change = sum(signed, zero)
            changes.append(float((change + 0.5 * change**2).mean()))
        return changes

    def _evaluate_model(self, model: AttentionModel) -> Outcome:
        return self._outcome(evaluate(model, self.task, self.prepared, batch_size=self.batch_size))

    def _record_outcome(self, removed: Removed, outcome: Outcome, cost: float) -> Outcome:
        """Record the outcome of a set and its cost; returns the outcome."""
        self.spent += cost
        if removed not in self.tried or outcome.examples >= self.tried[removed].examples:
            self.tried[removed] = outcome
        return outcome

    def _outcome(self, judged: Judged) -> Outcome:
        metric = float(self.task.measure(judged.scores)[self.task.metrics[0]])
        return Outcome(float(judged.losses.mean()), metric, len(judged.losses))

    def _evaluate_children(
        self, removed: Removed, candidates: Sequence[int], keep: int | None
    ) -> list[Outcome]:
        """The outcome of removing each candidate in addition to `removed`.

        Candidates that are unlikely to be among the best `keep` are dropped early.
        """
        size, inputs = self.batch_size, (self.task, self.prepared)
        if self._method is None:
            self._method = Sweep(self.model, *inputs, batch_size=size).method
        cut, seed, method = self.cut_model(removed), self.seed, self._method
        sweep = Sweep(cut, *inputs, batch_size=size, seed=seed, method=method)
        variants = {unit: Variant("head", str(unit), self.units[unit]) for unit in candidates}
        judged: dict[int, list[Judged]] = {unit: [] for unit in candidates}
        live = list(candidates)
        blocks, looks = self._blocks(
            sweep, None if keep is None or keep >= len(candidates) else keep
        )
        for number, items in enumerate(blocks):
            groups = sweep.groups([variants[unit] for unit in live])[1:]  # without the parent
            for group in sweep.run(number, items, groups):
                for i, variant in enumerate(group.variants):
                    judged[int(variant.named)].append(Judged(group.losses[i], group.scores[i]))
            if keep is not None and number in looks:
                live = self._drop_behind(live, judged, keep)
        return [self._outcome(_concatenate(judged[unit])) for unit in candidates]

    def _blocks(self, sweep: Sweep, keep: int | None) -> tuple[list[list[int]], set[int]]:
        """The blocks of examples in random order, and the indices of those after which candidates may be dropped.

        Candidates are dropped after an eighth, a quarter and a half of the examples. The blocks of the sweep, which are
        as large as memory allows, are split there.
        """
        unsplit = sweep.blocks()
        if keep is None or self.task.is_coupled:
            return unsplit, set()
        order = [item for block in unsplit for item in block]
        ends = [end for end in (len(order) // 8, len(order) // 4, len(order) // 2) if end >= FEWEST]
        blocks: list[list[int]] = []
        looks: set[int] = set()
        size = len(unsplit[0])
        for items in np.split(np.array(order), ends):
            blocks += [items[i : i + size].tolist() for i in range(0, len(items), size)]
            looks.add(len(blocks) - 1)
        return blocks, looks - {len(blocks) - 1}

    def _drop_behind(self, live: list[int], parts: dict[int, list[Judged]], keep: int) -> list[int]:
        """The candidates that remain, since they may still be among the best `keep`.

        If the objective is the loss: those that are not worse than the `keep`-th best one by more than two standard
        errors of the paired difference. If it is the metric: the better half.
        """
        judged = {unit: _concatenate(parts[unit]) for unit in live}
        costs = {unit: self.cost(self._outcome(judged[unit])) for unit in live}
        order = sorted(live, key=lambda unit: (costs[unit], unit))
        if len(order) <= keep:
            return live
        if self.objective == "metric":
            return [unit for unit in live if unit in set(order[: max(keep, -(-len(order) // 2))])]
        last_kept = judged[order[keep - 1]].losses

        def is_behind(unit: int) -> bool:
            difference = judged[unit].losses - last_kept
            error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
            return bool(difference.mean() > STANDARD_ERRORS * error)

        return [unit for unit in live if unit in order[:keep] or not is_behind(unit)]


def _concatenate(parts: Sequence[Judged]) -> Judged:
    losses = np.concatenate([part.losses for part in parts])
    return Judged(losses, np.concatenate([part.scores for part in parts]))
