"""Removal in order of importance, computed once on the unpruned model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from headscope.config.search import SearchConfig
from headscope.pruning.scores import scores_by
from headscope.pruning.searches._order import Scores, in_order
from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAKES_BY = True


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    return [rank(selection, scores_by(selection, config.by, config.relevance_rules))]


def rank(selection: SubsetEvaluator, scores: Scores) -> Iterator[SubsetState]:
    """Remove the least important units first, by their scores in the unpruned model."""
    yield from in_order(selection, ascending(scores(frozenset())))


def ascending(scores: NDArray[np.float64]) -> list[int]:
    """The units in order of their scores, lowest first."""
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], unit))
