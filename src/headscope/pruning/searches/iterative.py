"""Removal in order of importance, which is computed again after every step (Michel et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator

from headscope.config.search import SearchConfig
from headscope.pruning.scores import scores_by
from headscope.pruning.searches._order import Scores
from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator, SubsetState

TAKES_BY = True


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    return [
        iterative(selection, scores_by(selection, config.by, config.relevance_rules), config.step)
    ]


def iterative(selection: SubsetEvaluator, scores: Scores, step: float) -> Iterator[SubsetState]:
    """Remove the least important units. After each step, the remaining ones are scored again.

    step  share of all units that are removed between two scorings
    """
    units_per_step = max(1, round(step * len(selection.units)))
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        values = scores(removed)
        for unit in sorted(candidates, key=lambda unit: (values[unit], unit))[:units_per_step]:
            if unit in selection.candidates(removed):
                removed |= {unit}
                yield SubsetState(removed, selection.evaluate(removed))
