"""Sorts pairs of positions into kinds: diagonal, special tokens, neighbours, other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

KINDS = ("diagonal", "special", "neighbours", "other")


def count_pairs_by_kind(
    texts: Iterable[Sequence[int]], special: frozenset[int], length: int, *, at_ends: bool = False
) -> NDArray[np.float64]:
    """[kind, position, position]: number of texts (as token ids) in which a pair of positions is of a kind.

    A pair has the first kind that applies. Diagonal: a position with itself, also for special tokens. Special: at least
    one of the two is a special token. Neighbours: the positions are adjacent. Other: all other pairs.

    at_ends  count only pairs that include the first or the last position of a text
    """
    counts = np.zeros((len(KINDS), length, length))
    position = np.arange(length)
    distances = np.abs(position[:, None] - position[None, :])
    for ids in texts:
        size = min(len(ids), length)
        is_special = np.array([token in special for token in ids[:size]])
        distance = distances[:size, :size]
        kind = np.where(distance == 1, 2, 3)
        kind[is_special[:, None] | is_special[None, :]] = 1
        kind[distance == 0] = 0
        if at_ends:
            kind[1:-1, 1:-1] = -1
        for number in range(len(KINDS)):
            counts[number, :size, :size] += kind == number
    return counts


def mean_by_kind(
    values: NDArray[np.float64],
    counts: NDArray[np.float64],
    always_open: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """[…, kind]: the mean of values […, position, position] over the pairs of each kind; NaN without pairs.

    counts       number of pairs, from `count_pairs_by_kind`
    always_open  number of those pairs that are always allowed: they count as 1, whatever their value
    """
    learned = counts if always_open is None else counts - always_open
    constant = 0.0 if always_open is None else always_open.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        total = np.einsum("...ij,kij->...k", values, learned) + constant
        means: NDArray[np.float64] = total / counts.sum(axis=(1, 2))
    return means
