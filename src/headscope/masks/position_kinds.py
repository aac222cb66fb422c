"""What kinds of positions attention goes between: a token and itself, its neighbours, special tokens, all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

KINDS = ("diagonal", "special", "neighbours", "other")


def count_pairs_by_kind(
    texts: Iterable[Sequence[int]], special: frozenset[int], length: int, *, at_ends: bool = False
) -> NDArray[np.float64]:
    """[kind, position, position]: in how many texts, each given by its token ids, a pair of positions is of a kind.

    at_ends  only pairs with the first or the last position of a text

    A pair is of the first kind that fits: the diagonal is a token and itself, special tokens too; special has one at
    either end; neighbours are next to each other.
    """
    found = np.zeros((len(KINDS), length, length))
    place = np.arange(length)
    apart = np.abs(place[:, None] - place[None, :])
    for ids in texts:
        size = min(len(ids), length)
        marked = np.array([token in special for token in ids[:size]])
        distance = apart[:size, :size]
        kind = np.where(distance == 1, 2, 3)
        kind[marked[:, None] | marked[None, :]] = 1
        kind[distance == 0] = 0
        if at_ends:
            kind[1:-1, 1:-1] = -1
        for number in range(len(KINDS)):
            found[number, :size, :size] += kind == number
    return found


def mean_by_kind(
    values: NDArray[np.float64],
    kinds: NDArray[np.float64],
    opened: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """[…, kind]: the mean of [… , position, position] over the pairs of each kind; NaN where there are none.

    opened  those of the pairs, as many for each kind as in `kinds`, that are open whatever their value
    """
    learned = kinds if opened is None else kinds - opened
    always = 0.0 if opened is None else opened.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        total = np.einsum("...ij,kij->...k", values, learned) + always
        found: NDArray[np.float64] = total / kinds.sum(axis=(1, 2))
    return found
