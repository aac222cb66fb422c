"""Small pictures of many maps: what the grid of all heads needs of a long text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 48  # cells at most


def thumbnails(weights: NDArray[np.float32], side: int = SIDE) -> NDArray[np.float32]:
    """Maps [map, query, key] of at most `side` cells each way: a cell is the largest of its block, signs aside.

    Means would let a thin diagonal fade, which is what one looks for in a thumbnail.
    """
    for axis in (1, 2):
        length = weights.shape[axis]
        if length > side:
            starts = np.arange(side) * length // side
            most, least = (
                one.reduceat(weights, starts, axis=axis) for one in (np.maximum, np.minimum)
            )
            weights = np.where(most >= -least, most, least)
    return weights
