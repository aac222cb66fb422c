"""Norm: the whole tensor of vectors is built."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def compute_map(weights: Array, values: Array, block: Array) -> tuple[Array, Array]:
    """One head's map of shares and its rows' sums, from the whole tensor of vectors [query, key, out]."""
    moved = weights[:, :, None] * (values @ block.T)[None, :, :]
    lengths = np.sqrt((moved**2).sum(axis=-1))
    totals = lengths.sum(axis=1)
    return lengths / totals[:, None], totals
