"""What removing sets of heads does to a task, on the examples that a choice is made on.

A set's children (the set and one head more) are tried on the model that is really cut down to the set, by the fast
sweep: what lies below the head is computed once for all of them. Where many compete for a few places they race:
after an eighth of the examples, a quarter and a half those that cannot come in any more drop out.
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
from headscope.tasks.base import Judged, Prepared, Task
from headscope.tasks.inference import evaluate, sites_in_use

if TYPE_CHECKING:
    from numpy.typing import NDArray

Objective = Literal["loss", "metric"]
OBJECTIVES = ("loss", "metric")
Removed = frozenset[int]  # of units, by number
STANDARD_ERRORS = 2.0  # a candidate that is worse by so many drops out of a race
FEWEST = 32  # examples before a race is looked at
GUIDE = 128  # examples that slopes are taken of: they only say what to try


@dataclass(frozen=True)
class Outcome:
    """What a set does: mean loss in nats, metric, and on how many examples."""

    loss: float
    metric: float
    examples: int


@dataclass(frozen=True)
class SubsetState:
    """A set of removed units and what it does."""

    removed: Removed
    outcome: Outcome


class Memory:
    """Finished work by name, so that a run that was killed does not repeat it; this one ends with the process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def compute_once(self, key: str, compute: Callable[[], Any]) -> Any:
        """The stored value; computed and stored if there is none."""
        if key not in self._values:
            self.add(key, compute())
        return self._values[key]

    def add(self, key: str, value: Any) -> None:
        self._values[key] = value


class Selection:
    """The examples to choose on, and everything that was tried on them.

    units      the heads that can be cut, one by one or together, among those that the task uses
    intact     what the whole model does
    tried      every set that was evaluated, in order; the last outcome of each
    spent      evaluations of one set on all examples, so far; a backward pass counts as three
    at_least   so many heads stay in every layer
    among      only these heads may go; None: all
    """

    def __init__(
        self,
        model: AttentionModel,
        task: Task,
        prepared: Prepared,
        *,
        objective: Objective = "loss",
        at_least: int = 0,
        among: HeadSet | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
        seed: int = 0,
        memory: Memory | None = None,
    ) -> None:
        check_choice(objective, OBJECTIVES, "`objective`", "is no objective")
        self.model, self.task, self.prepared = model, task, prepared
        self.objective, self.at_least = objective, at_least
        self.batch_size, self.seed = batch_size, seed
        self.memory = memory or Memory()
        self.guide = prepared
        if len(prepared.items) > GUIDE:
            sample = np.random.default_rng(seed).permutation(len(prepared.items))[:GUIDE]
            few = [prepared.items[i] for i in sorted(sample)]
            self.guide = task.prepare(model, few, max_length=max_length)
        self.sites = set(sites_in_use(model, task, prepared))
        self.units = [
            unit for unit in units(model) if any(head.site in self.sites for head in unit)
        ]
        if among is not None:
            self.units = [unit for unit in self.units if all(head in among for head in unit)]
        if not self.units:
            raise HeadscopeError(
                "none of these heads can be cut alone",
                where="`among`",
                expected="heads that the task uses, as 3.2,4.*",
            )
        self.tried: dict[Removed, Outcome] = {}
        self.spent = 0.0
        self._method: str | None = None  # of the sweep, found valid once
        self._slopes: dict[Removed, NDArray[np.float64]] = {}
        self._cut: tuple[Removed, AttentionModel] = (frozenset(), model)
        self.intact = self.evaluated(frozenset())

    @property
    def count(self) -> int:
        return len(self.prepared.items)

    # Sets

    def heads(self, removed: Iterable[int]) -> HeadSet:
        return HeadSet(
            [head for unit in removed for head in self.units[unit]], among=self.model.heads
        )

    def size(self, removed: Iterable[int]) -> int:
        return sum(len(self.units[unit]) for unit in removed)

    def candidates(self, removed: Removed) -> list[int]:
        """The units that may go next: not the last `at_least` heads of a layer, nor the model's last head."""
        left = Counter(head.site for head in self.model.heads)
        for gone in removed:
            left.subtract(head.site for head in self.units[gone])
        total = left.total()

        def may_go(unit: Sequence[Head]) -> bool:
            lost = Counter(head.site for head in unit)
            return len(unit) < total and all(left[s] - lost[s] >= self.at_least for s in lost)

        return [i for i, unit in enumerate(self.units) if i not in removed and may_go(unit)]

    def goodness(self, outcome: Outcome) -> float:
        """Lower is better: the loss, or minus the metric; an undefined metric is worst."""
        value = outcome.loss if self.objective == "loss" else -outcome.metric
        return value if np.isfinite(value) else np.inf

    # What sets do

    def cut(self, removed: Removed) -> AttentionModel:
        """The model without these units; the last one asked for is kept."""
        if self._cut[0] != removed:
            heads = list(self.heads(removed))
            self._cut = removed, prune(self.model, heads) if heads else self.model
        return self._cut[1]

    def evaluated(self, removed: Removed) -> Outcome:
        """What one set does on all examples."""
        if removed in self.tried and self.tried[removed].examples == self.count:
            return self.tried[removed]
        stored = self.memory.compute_once(
            f"evaluate {sorted(removed)}", lambda: asdict(self._measured(self.cut(removed)))
        )
        return self._note(removed, Outcome(**stored), 1.0)

    def evaluated_as(self, removed: Removed, model: AttentionModel) -> Outcome:
        """What one set does in this model, which was trained after these units were cut."""
        return self._note(removed, self._measured(model), 1.0)

    def children(
        self, removed: Removed, candidates: Sequence[int], *, keep: int | None = None
    ) -> list[SubsetState]:
        """The sets with one unit more, best first.

        keep  how many of them are wanted: the others race for these places. None: all are tried on all examples
        """
        if not candidates:
            return []
        stored = self.memory.compute_once(
            f"children {sorted(removed)} {list(candidates)} {keep}",
            lambda: [asdict(outcome) for outcome in self._test(removed, candidates, keep)],
        )
        states = []
        for unit, values in zip(candidates, stored, strict=True):
            state = SubsetState(removed | {unit}, Outcome(**values))
            self._note(state.removed, state.outcome, state.outcome.examples / self.count)
            states.append(state)

        def rank(state: SubsetState) -> tuple[int, float, list[int]]:
            # Whoever dropped out is behind all that did not, whatever their few examples say.
            examples = state.outcome.examples
            return -examples, self.goodness(state.outcome), sorted(state.removed)

        return sorted(states, key=rank)

    def slopes(self, removed: Removed) -> NDArray[np.float64]:
        """[unit]: the change of loss that switching each on or off should make, to second order, by a few examples.

        The slope alone misjudges the heads that matter most: what falls steeply at first may rise before it is gone.
        """
        if removed not in self._slopes:
            slopes = self.memory.compute_once(
                f"slopes {sorted(removed)}", lambda: self._compute_slopes(removed)
            )
            self.spent += BACKWARD * len(self.guide.items) / self.count
            self._slopes[removed] = np.array(slopes)
        return self._slopes[removed]

    # Inside

    def _compute_slopes(self, removed: Removed) -> list[float]:
        gone, size = self.heads(removed), self.batch_size
        result = gradient_terms(
            self.model, self.task, self.guide, batch_size=size, removed=list(gone)
        )
        column = {head: result.signed[:, i] for i, head in enumerate(result.heads)}
        zero = np.zeros(len(result.signed))
        slopes = []
        for unit in self.units:
            signed = (column.get(head, zero) * (1 if head in gone else -1) for head in unit)
            change = sum(signed, zero)
            slopes.append(float((change + 0.5 * change**2).mean()))
        return slopes

    def _measured(self, model: AttentionModel) -> Outcome:
        return self._outcome(evaluate(model, self.task, self.prepared, batch_size=self.batch_size))

    def _note(self, removed: Removed, outcome: Outcome, cost: float) -> Outcome:
        self.spent += cost
        if removed not in self.tried or outcome.examples >= self.tried[removed].examples:
            self.tried[removed] = outcome
        return outcome

    def _outcome(self, judged: Judged) -> Outcome:
        metric = float(self.task.measure(judged.scores)[self.task.metrics[0]])
        return Outcome(float(judged.losses.mean()), metric, len(judged.losses))

    def _test(self, removed: Removed, candidates: Sequence[int], keep: int | None) -> list[Outcome]:
        """Sequential test of the candidates: those that cannot be among the first `keep` drop out early."""
        size, inputs = self.batch_size, (self.task, self.prepared)
        if self._method is None:
            self._method = Sweep(self.model, *inputs, batch_size=size).method
        cut, seed, method = self.cut(removed), self.seed, self._method
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
                live = self._still_in(live, judged, keep)
        return [self._outcome(_joined(judged[unit])) for unit in candidates]

    def _blocks(self, sweep: Sweep, keep: int | None) -> tuple[list[list[int]], set[int]]:
        """The examples in random order, and the blocks after which a race is looked at.

        These are an eighth, a quarter and a half of all, however little fits into memory at a time.
        """
        whole = sweep.blocks()
        if keep is None or self.task.is_coupled:
            return whole, set()
        order = [item for block in whole for item in block]
        ends = [end for end in (len(order) // 8, len(order) // 4, len(order) // 2) if end >= FEWEST]
        found: list[list[int]] = []
        looks: set[int] = set()
        for part in np.split(np.array(order), ends):
            size = len(whole[0])
            found += [part[i : i + size].tolist() for i in range(0, len(part), size)]
            looks.add(len(found) - 1)
        return found, looks - {len(found) - 1}

    def _still_in(self, live: list[int], parts: dict[int, list[Judged]], keep: int) -> list[int]:
        """Those that may yet be among the first `keep`.

        By the loss: whoever is not worse than the last of them by two standard errors of their difference, example by
        example. By a metric that is no mean: the better half.
        """
        judged = {unit: _joined(parts[unit]) for unit in live}
        goodness = {unit: self.goodness(self._outcome(judged[unit])) for unit in live}
        order = sorted(live, key=lambda unit: (goodness[unit], unit))
        if len(order) <= keep:
            return live
        if self.objective == "metric":
            return [unit for unit in live if unit in set(order[: max(keep, -(-len(order) // 2))])]
        last = judged[order[keep - 1]].losses

        def is_behind(unit: int) -> bool:
            difference = judged[unit].losses - last
            error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
            return bool(difference.mean() > STANDARD_ERRORS * error)

        return [unit for unit in live if unit in order[:keep] or not is_behind(unit)]


def _joined(parts: Sequence[Judged]) -> Judged:
    losses = np.concatenate([part.losses for part in parts])
    return Judged(losses, np.concatenate([part.scores for part in parts]))
