"""Removal in one order of importance."""

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
    """The least important heads first, by scores of the whole model."""
    yield from in_order(selection, ascending(scores(frozenset())))


def ascending(scores: NDArray[np.float64]) -> list[int]:
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], unit))
