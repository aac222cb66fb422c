"""An order by importance that is computed anew after every step (Michel et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator

from headscope.config.search import SearchConfig
from headscope.pruning.scores import scores_by
from headscope.pruning.searches._order import Scores
from headscope.pruning.subset_evaluator import Removed, Selection, SubsetState


def paths(selection: Selection, config: SearchConfig, seed: int) -> list[Iterator[SubsetState]]:
    return [iterative(selection, scores_by(selection, config.by, config.rules), config.step)]


def iterative(selection: Selection, scores: Scores, step: float) -> Iterator[SubsetState]:
    """The least important go, and after a share `step` of all those that are left are scored again."""
    each = max(1, round(step * len(selection.units)))
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        known = scores(removed)
        for unit in sorted(candidates, key=lambda one: (known[one], one))[:each]:
            if unit in selection.candidates(removed):
                removed |= {unit}
                yield SubsetState(removed, selection.evaluated(removed))
