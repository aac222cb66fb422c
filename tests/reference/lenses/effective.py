"""Effective attention: the null space is spanned in full."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def compute_map(weights: Array, values: Array, block: Array) -> tuple[Array, None]:
    return effective(weights, values, block, simplex=False), None


def effective(weights: Array, values: Array, block: Array, *, simplex: bool) -> Array:
    """One head's map, each row less its projection onto a basis of the left null space, which is spanned in full.

    Of the keys that the row sees (a weight that is exactly 0 is forbidden); rows that see few enough are identified.
    """
    moved = values @ block.T
    if simplex:
        moved = np.concatenate([moved, np.ones((len(moved), 1))], axis=1)
    result = weights.copy()
    for i, row in enumerate(weights):
        seen = np.flatnonzero(row)
        if len(seen) > values.shape[1] + simplex:
            left, sizes, _ = np.linalg.svd(moved[seen], full_matrices=True)
            rank = int((sizes > 1e-6 * sizes[0]).sum())
            null = left[:, rank:]
            result[i, seen] = row[seen] - row[seen] @ null @ null.T
    return result
