"""How important is every unit when some are gone already? Any importance, for the searches that go by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.agreement import of_items
from headscope.ablation.gradients import Terms, terms
from headscope.ablation.norms import output_norms
from headscope.ablation.relevance import relevances
from headscope.config.names import GRADIENT_SCORES, RELEVANCE_SCORES, SCORES
from headscope.errors import HeadscopeError, choices
from headscope.heads import Head
from headscope.model.relevance.rules import Rules
from headscope.pruning.subset_evaluator import BACKWARD, Removed, Selection
from headscope.statistics import chosen, stream
from headscope.tasks.base import batch_of, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

OfHeads = dict[Head, float]


def scores_by(
    selection: Selection, importance: str, rules: Rules = "voita"
) -> Callable[[Removed], NDArray[np.float64]]:
    """A function of what is gone: the importance of every unit, the sum of its heads'.

    rules  of relevance
    """
    if importance not in SCORES:
        raise HeadscopeError(
            f'"{importance}" is no importance', where="`by`", expected=choices(importance, SCORES)
        )

    def scores(removed: Removed) -> NDArray[np.float64]:
        key = f"scores {importance} {rules + ' ' if importance in RELEVANCE_SCORES else ''}{sorted(removed)}"
        known = selection.memory.get(key)
        if known is None:
            if importance == "ablation":
                known = _by_ablation(selection, removed)
            elif importance in GRADIENT_SCORES:
                known = _by_gradient(selection, removed, importance)
            elif importance in RELEVANCE_SCORES:
                known = _by_relevance(selection, removed, importance, rules)
            else:
                found = _of_heads(selection, removed, importance)
                known = [sum(found.get(head, 0.0) for head in unit) for unit in selection.units]
            selection.memory.add(key, known)
        is_backward = importance in GRADIENT_SCORES or importance in RELEVANCE_SCORES
        selection.spent += BACKWARD if is_backward else 0.0 if importance == "ablation" else 1.0
        return np.array(known)

    return scores


def _by_ablation(selection: Selection, removed: Removed) -> list[float]:
    states = selection.children(removed, selection.candidates(removed))
    found = {next(iter(state.removed - removed)): state.outcome.loss for state in states}
    return [found.get(number, np.inf) for number in range(len(selection.units))]


def _by_gradient(selection: Selection, removed: Removed, importance: str) -> list[float]:
    """Terms are added up within a unit before any absolute value or square is taken of them."""
    model, task, prepared = selection.cut(removed), selection.task, selection.prepared
    found = terms(model, task, prepared, batch_size=selection.batch_size)
    places = {head: place for place, head in enumerate(found.heads)}
    left = [unit for unit in selection.units if unit[0] in places]
    of_units = [[places[head] for head in unit if head in places] for unit in left]

    def added(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([table[:, columns].sum(axis=1) for columns in of_units], axis=1)

    whole = Terms(
        tuple(unit[0] for unit in left),
        added(found.signed),
        added(found.absolute),
        added(found.tokens),
    )
    values = of_items(whole.importances()[importance], np.arange(len(prepared.items)))
    known = dict(zip(left, values.tolist(), strict=True))
    return [known.get(unit, 0.0) for unit in selection.units]


def _by_relevance(
    selection: Selection, removed: Removed, importance: str, rules: Rules
) -> list[float]:
    """Of the model that is really cut; terms are added up within a unit first, as those of gradients are."""
    model, task, prepared = selection.cut(removed), selection.task, selection.prepared
    found = relevances(
        model, task, prepared, rules=rules, batch_size=selection.batch_size, seed=selection.seed
    )
    whole = found.together(selection.units)
    values = of_items(whole.importances()[importance], np.arange(len(prepared.items)))
    known = dict(zip(whole.heads, values.tolist(), strict=True))
    return [sum(known.get(head, 0.0) for head in unit) for unit in selection.units]


def _of_heads(selection: Selection, removed: Removed, importance: str) -> OfHeads:
    model, task, prepared, size = (
        selection.cut(removed),
        selection.task,
        selection.prepared,
        selection.batch_size,
    )
    if importance == "norm":
        norms = output_norms(model, task, prepared, model.heads, size)
        if norms is None:
            expected = ", ".join(GRADIENT_SCORES)
            raise HeadscopeError(
                "this family's heads have no norms", where='`by="norm"`', expected=expected
            )
        return dict(zip(model.heads, norms.mean(axis=0).tolist(), strict=True))
    asked = chosen([importance])
    for _ in stream(
        model, (batch_of(model, prepared, numbers) for numbers in plan(prepared, size)), asked
    ):
        pass
    sign = (
        -1.0 if importance == "entropy" else 1.0
    )  # a head that spreads its attention is held for less important
    rows = [row for statistic in asked for row in statistic.table() if row.statistic == importance]
    return {Head(row.stack, row.layer, row.head): sign * row.value for row in rows}
