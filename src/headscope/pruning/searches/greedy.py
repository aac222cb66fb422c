"""Every head that is left is tried; the one whose removal costs least goes."""

from __future__ import annotations

from collections.abc import Iterator

from headscope.config.search import SearchConfig
from headscope.pruning.subset_evaluator import Removed, Selection, SubsetState


def paths(selection: Selection, config: SearchConfig, seed: int) -> list[Iterator[SubsetState]]:
    return [greedy(selection)]


def greedy(selection: Selection) -> Iterator[SubsetState]:
    """Exact: all that may go are tried on all examples."""
    removed: Removed = frozenset()
    while candidates := selection.candidates(removed):
        best = selection.children(removed, candidates)[0]
        removed = best.removed
        yield best
