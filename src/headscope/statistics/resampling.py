"""Splits the units of data (sentences, documents) into two halves, and bootstraps over units, in one pass.

The half of a unit and its bootstrap weights depend only on its text and the seed, not on order, batch size or number of
processes. The weights are Poisson(1). This is the streaming form of drawing units with replacement, so memory does not
depend on the number of units.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from headscope.tables import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

REPLICATES = 500
FEWEST = 10  # fewest right answers, and fewest wrong ones, for an interval from the replicates


def fingerprint(text: str, seed: int) -> int:
    """A 64-bit hash of a unit's text and the seed."""
    return int.from_bytes(blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest(), "little")


def is_reported(unit: int) -> bool:
    """Whether a unit is in the report split; the others are in the selection split."""
    return bool(unit & 1)


def poisson_weights(units: Sequence[int], replicates: int = REPLICATES) -> NDArray[np.float64]:
    """[replicate, unit]: how often each unit is drawn in each bootstrap replicate."""
    drawn = [
        np.random.Generator(np.random.Philox(key=unit >> 1)).poisson(1.0, replicates)
        for unit in units
    ]
    return np.stack(drawn, axis=1).astype(np.float64) if drawn else np.zeros((replicates, 0))


class ResampledSums:
    """Sums of arrays over units, and the same sums in each bootstrap replicate; mergeable."""

    def __init__(self, shape: tuple[int, ...], replicates: int = REPLICATES) -> None:
        self._total: NDArray[np.float64] = np.zeros(shape)
        self._replicates: NDArray[np.float64] = np.zeros((replicates, *shape))
        self._pending: list[tuple[Sequence[int], NDArray[np.float64]]] = []

    def add(self, units: Sequence[int], values: NDArray[np.float64]) -> None:
        """Add values [unit, *shape]."""
        self._pending.append((units, values))
        # One matrix product for many units, because adding to the large replicates is slow
        if sum(len(units) for units, _ in self._pending) >= 256:
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        units = [unit for units, _ in self._pending for unit in units]
        weights = poisson_weights(units, len(self._replicates))
        values = np.concatenate([values for _, values in self._pending])
        self._pending = []
        self._total += values.sum(axis=0)
        sums = weights @ values.reshape(len(values), -1)
        self._replicates += sums.reshape(self._replicates.shape)

    @property
    def total(self) -> NDArray[np.float64]:
        self._settle()
        return self._total

    @property
    def replicates(self) -> NDArray[np.float64]:
        """[replicate, *shape]"""
        self._settle()
        return self._replicates

    def merge(self, other: ResampledSums) -> None:
        self._settle()
        self._total += other.total
        self._replicates += other.replicates

    def __getstate__(self) -> dict[str, object]:
        self._settle()
        return self.__dict__.copy()


def bootstrap_share_interval(
    credit: NDArray[np.float64],
    count: float,
    drawn_credit: NDArray[np.float64],
    drawn_count: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % interval of credit / count, the share of right answers, from bootstrap replicates of both.

    It is the middle 95 % of the replicates if at least 10 answers are right and at least 10 are wrong. With fewer,
    replicates are not enough, since resampling cannot draw what did not occur: 20 right answers of 20 give [1, 1]. Then
    it is Wilson's interval with an effective number of answers: share·(1 − share) / variance of the replicates, at most
    `count`. If all answers are right or all are wrong, this variance is 0; then the effective number is that of units
    by Kish's formula, count² / variance of `drawn_count`.

    credit        […]: number of right answers
    count         number of answers
    drawn_credit  [replicate, …]
    drawn_count   [replicate]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = drawn_credit / drawn_count.reshape(-1, *[1] * (drawn_credit.ndim - 1))
        low, high = interval(shares)
        share = np.clip(credit / count, 0.0, 1.0)
        variance = np.nanvar(np.where(np.isfinite(low), shares, 0.0), axis=0)
        units = np.clip(count**2 / drawn_count.var(), 1.0, count)
        effective = np.where(variance > 0, np.minimum(share * (1 - share) / variance, count), units)
        is_few = np.isfinite(low) & (np.minimum(credit, count - credit) < FEWEST)
        wilson_low, wilson_high = wilson_interval(share, effective)
    return np.where(is_few, wilson_low, low), np.where(is_few, wilson_high, high)


def interval(replicates: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middle 95 % of replicates [replicate, …]; NaN if fewer than 20 are finite."""
    is_defined = np.isfinite(replicates).sum(axis=0) >= 20
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(np.where(is_defined, replicates, 0.0), [0.025, 0.975], axis=0)
    return np.where(is_defined, low, np.nan), np.where(is_defined, high, np.nan)
