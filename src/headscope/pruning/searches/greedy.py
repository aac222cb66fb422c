"""Greedy search: evaluate the removal of every remaining head, remove the one with the least cost, and repeat."""

from __future__ import annotations

from collections.abc import Iterator

from headscope.config.search import SearchConfig
from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator, SubsetState


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    return [greedy(selection)]


def greedy(selection: SubsetEvaluator) -> Iterator[SubsetState]:
    """The greedy path; at every step all candidates are evaluated on all examples."""
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        best = selection.children(removed, candidates)[0]
        removed = best.removed
        yield best
