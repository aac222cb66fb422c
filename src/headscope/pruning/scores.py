"""Importance of every unit in a model from which some units were removed, for searches that use an importance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.agreement import of_items
from headscope.ablation.estimates import EstimateInputs, compute_estimate, cost_of
from headscope.config.checks import check_choice
from headscope.config.importance import ImportanceConfig
from headscope.config.names import SCORES
from headscope.errors import HeadscopeError
from headscope.model.relevance.rules import Rules
from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scores_by(
    selection: SubsetEvaluator, importance: str, rules: Rules = "voita"
) -> Callable[[Removed], NDArray[np.float64]]:
    """A function of the removed units that returns [unit]: the importance of every unit, summed over its heads.

    rules  rules of the importance `relevance`
    """
    check_choice(importance, SCORES, "`by`", "is not an importance")
    is_exact, has_rules = importance == "ablation", SCORES[importance] == "relevance"
    # `selection` counts the cost of exact ablations itself.
    cost = 0.0 if is_exact else cost_of(SCORES[importance])
    name = f"{importance} {rules}" if has_rules else importance

    def compute(removed: Removed) -> list[float]:
        if is_exact:
            return _by_ablation(selection, removed)
        return _by_estimate(selection, removed, importance, rules if has_rules else None)

    def scores(removed: Removed) -> NDArray[np.float64]:
        key = f"scores {name} {sorted(removed)}"
        values = selection.memory.compute_once(key, lambda: compute(removed))
        selection.spent += cost
        return np.array(values)

    return scores


def _by_ablation(selection: SubsetEvaluator, removed: Removed) -> list[float]:
    """[unit]: the loss if the unit is removed in addition; infinite if it may not be removed."""
    states = selection.children(removed, selection.candidates(removed))
    losses = {next(iter(state.removed - removed)): state.outcome.loss for state in states}
    return [losses.get(number, np.inf) for number in range(len(selection.units))]


def _by_estimate(
    selection: SubsetEvaluator, removed: Removed, importance: str, rules: Rules | None
) -> list[float]:
    """[unit]: the estimate on the model that is pruned by the removed units."""
    model, name = selection.cut_model(removed), SCORES[importance]
    estimate = compute_estimate(
        name,
        EstimateInputs(
            model,
            selection.task,
            selection.prepared,
            tuple(head for head in model.heads if head.site in selection.sites),
            ImportanceConfig(by=(name,), relevance_rules=rules, batch_size=selection.batch_size),
            selection.seed,
            selection.units,
        ),
    )
    if not estimate.importances:
        raise HeadscopeError(
            "not defined for the heads of this model family",
            where=f'`by="{importance}"`',
            fix="Choose another importance, such as gradient",
        )
    first = next(iter(estimate.importances.values()))
    items = np.arange(len(selection.prepared.items))
    values = of_items(estimate.importances.get(importance, first), items)
    scores = dict(zip(estimate.heads, values.tolist(), strict=True))
    return [sum(scores.get(head, 0.0) for head in unit) for unit in selection.units]
