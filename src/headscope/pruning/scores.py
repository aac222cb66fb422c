"""How important is every unit when some are gone already? Any importance, for the searches that go by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.agreement import of_items
from headscope.ablation.gradients import Terms, terms
from headscope.ablation.norms import output_norms
from headscope.ablation.relevance import relevances
from headscope.config.checks import check_choice
from headscope.config.names import GRADIENT_SCORES, RELEVANCE_SCORES, SCORES
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.relevance.rules import Rules
from headscope.pruning.subset_evaluator import BACKWARD, Removed, Selection
from headscope.statistics import select_statistics, stream
from headscope.tasks.base import batch_of, plan_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scores_by(
    selection: Selection, importance: str, rules: Rules = "voita"
) -> Callable[[Removed], NDArray[np.float64]]:
    """A function of what is gone: the importance of every unit, the sum of its heads'.

    rules  of relevance
    """
    check_choice(importance, SCORES, "`by`", "is no importance")
    is_backward = importance in GRADIENT_SCORES or importance in RELEVANCE_SCORES
    cost = BACKWARD if is_backward else 0.0 if importance == "ablation" else 1.0
    name = f"{importance} {rules}" if importance in RELEVANCE_SCORES else importance

    def compute(removed: Removed) -> list[float]:
        if importance == "ablation":
            return _by_ablation(selection, removed)
        if importance in GRADIENT_SCORES:
            return _by_gradient(selection, removed, importance)
        if importance in RELEVANCE_SCORES:
            return _by_relevance(selection, removed, importance, rules)
        return _by_unit(selection, _of_heads(selection, removed, importance))

    def scores(removed: Removed) -> NDArray[np.float64]:
        key = f"scores {name} {sorted(removed)}"
        values = selection.memory.compute_once(key, lambda: compute(removed))
        selection.spent += cost
        return np.array(values)

    return scores


def _by_unit(selection: Selection, scores: dict[Head, float]) -> list[float]:
    return [sum(scores.get(head, 0.0) for head in unit) for unit in selection.units]


def _by_ablation(selection: Selection, removed: Removed) -> list[float]:
    states = selection.children(removed, selection.candidates(removed))
    found = {next(iter(state.removed - removed)): state.outcome.loss for state in states}
    return [found.get(number, np.inf) for number in range(len(selection.units))]


def _by_gradient(selection: Selection, removed: Removed, importance: str) -> list[float]:
    """Terms are added up within a unit before any absolute value or square is taken of them."""
    model, task, prepared = selection.cut(removed), selection.task, selection.prepared
    by_head = terms(model, task, prepared, batch_size=selection.batch_size)
    index = {head: i for i, head in enumerate(by_head.heads)}
    left = [unit for unit in selection.units if unit[0] in index]
    columns = [[index[head] for head in unit if head in index] for unit in left]
    signed, absolute, tokens = (
        np.stack([table[:, unit].sum(axis=1) for unit in columns], axis=1)
        for table in (by_head.signed, by_head.absolute, by_head.tokens)
    )
    by_unit = Terms(tuple(unit[0] for unit in left), signed, absolute, tokens)
    values = of_items(by_unit.importances()[importance], np.arange(len(prepared.items)))
    scores = dict(zip(left, values.tolist(), strict=True))
    return [scores.get(unit, 0.0) for unit in selection.units]


def _by_relevance(
    selection: Selection, removed: Removed, importance: str, rules: Rules
) -> list[float]:
    """Of the model that is really cut; terms are added up within a unit first, as those of gradients are."""
    model, task, prepared = selection.cut(removed), selection.task, selection.prepared
    size, seed = selection.batch_size, selection.seed
    by_head = relevances(model, task, prepared, rules=rules, batch_size=size, seed=seed)
    by_unit = by_head.together(selection.units)
    values = of_items(by_unit.importances()[importance], np.arange(len(prepared.items)))
    return _by_unit(selection, dict(zip(by_unit.heads, values.tolist(), strict=True)))


def _of_heads(selection: Selection, removed: Removed, importance: str) -> dict[Head, float]:
    model, task, prepared = selection.cut(removed), selection.task, selection.prepared
    size = selection.batch_size
    if importance == "norm":
        norms = output_norms(model, task, prepared, model.heads, size)
        if norms is None:
            expected = ", ".join(GRADIENT_SCORES)
            raise HeadscopeError(
                "this family's heads have no norms", where='`by="norm"`', expected=expected
            )
        return dict(zip(model.heads, norms.mean(axis=0).tolist(), strict=True))
    statistics = select_statistics([importance])
    batches = (batch_of(model, prepared, numbers) for numbers in plan_batches(prepared, size))
    for _ in stream(model, batches, statistics):
        pass
    sign = -1.0 if importance == "entropy" else 1.0  # diffuse heads count as less important
    rows = [row for each in statistics for row in each.table() if row.statistic == importance]
    return {Head(row.stack, row.layer, row.head): sign * row.value for row in rows}
