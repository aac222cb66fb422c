"""Removal of units in a fixed order, for the searches `rank` and `random`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscope.pruning.subset_evaluator import Removed, SubsetEvaluator, SubsetState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A function of the removed units that returns [unit]: the importance of every unit in the model without them
Scores = Callable[[Removed], "NDArray[np.float64]"]


def in_order(selection: SubsetEvaluator, order: Sequence[int]) -> Iterator[SubsetState]:
    """Remove units in this order; a unit that may not be removed (`min_heads_per_layer`) is skipped."""
    removed: Removed = frozenset()
    for unit in order:
        if unit in selection.candidates(removed):
            removed |= {unit}
            yield SubsetState(removed, selection.evaluate(removed))
