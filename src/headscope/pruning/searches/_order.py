"""What searches along one order of heads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscope.pruning.subset_evaluator import Removed, Selection, SubsetState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The importance of every unit after these are removed.
Scores = Callable[[Removed], "NDArray[np.float64]"]


def in_order(selection: Selection, order: Sequence[int]) -> Iterator[SubsetState]:
    """Remove units in this order, as far as they may go."""
    removed: Removed = frozenset()
    for unit in order:
        if unit in selection.candidates(removed):
            removed |= {unit}
            yield SubsetState(removed, selection.evaluated(removed))
