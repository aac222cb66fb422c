"""Shared by searches that remove heads in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator, SubsetState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The importance of every unit after these are removed.
Scores = Callable[[Removed], "NDArray[np.float64]"]


def in_order(selection: SubsetEvaluator, order: Sequence[int]) -> Iterator[SubsetState]:
    """Remove units in this order, as far as possible."""
    removed: Removed = frozenset()
    for unit in order:
        if unit in selection.candidates(removed):
            removed |= {unit}
            yield SubsetState(removed, selection.evaluate(removed))
