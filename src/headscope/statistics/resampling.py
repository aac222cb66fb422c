"""Two halves of the data, and intervals from resampling its units (sentences, documents): both in one pass.

A unit's half and its weights in the bootstrap follow from its text and the seed alone, so that order, batch size and
splitting over processes change nothing. The weights are Poisson(1), the streamed form of drawing units with
replacement: sums of one size are kept, whatever the number of units.
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
# Right answers, and wrong ones, for which the replicates show how far a share may be off
FEWEST = 10


def fingerprint(text: str, seed: int) -> int:
    """A number of 64 bits that stands for this unit under this seed."""
    return int.from_bytes(blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest(), "little")


def is_reported(unit: int) -> bool:
    """Whether this unit is of the half that is reported on; the other half is chosen on."""
    return bool(unit & 1)


def poisson_weights(units: Sequence[int], replicates: int = REPLICATES) -> NDArray[np.float64]:
    """[replicate, unit]: how often each unit is drawn."""
    drawn = [
        np.random.Generator(np.random.Philox(key=unit >> 1)).poisson(1.0, replicates)
        for unit in units
    ]
    return np.stack(drawn, axis=1).astype(np.float64) if drawn else np.zeros((replicates, 0))


class ResampledSums:
    """Sums over units of an array of any shape, and the same sums in each replicate; mergeable."""

    def __init__(self, shape: tuple[int, ...], replicates: int = REPLICATES) -> None:
        self._total: NDArray[np.float64] = np.zeros(shape)
        self._replicates: NDArray[np.float64] = np.zeros((replicates, *shape))
        self._pending: list[tuple[Sequence[int], NDArray[np.float64]]] = []

    def add(self, units: Sequence[int], values: NDArray[np.float64]) -> None:
        """values [unit, *shape] of these units."""
        self._pending.append((units, values))
        # One product for many: the replicates are large
        if sum(len(some) for some, _ in self._pending) >= 256:
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        weights = poisson_weights(
            [unit for units, _ in self._pending for unit in units], len(self._replicates)
        )
        values = np.concatenate([values for _, values in self._pending])
        self._pending = []
        self._total += values.sum(axis=0)
        self._replicates += (weights @ values.reshape(len(values), -1)).reshape(
            self._replicates.shape
        )

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
    """95 % interval of the share credit / count of right answers, from both in every replicate.

    The middle 95 % of the replicates, unless fewer than 10 answers are right or fewer than 10 are wrong. Resampling
    cannot draw what did not occur: 20 right answers of 20 would give [1, 1]. In that case it is Wilson's interval with
    the effective number of answers. That is share·(1 − share) / variance of the replicates, at most `count`. If all
    answers are equal, every unit counts as one: Kish's effective number of units, count² / variance of `drawn_count`.

    credit, drawn_credit  […] and [replicate, …]; count, drawn_count: a number and [replicate]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = drawn_credit / drawn_count.reshape(-1, *[1] * (drawn_credit.ndim - 1))
        low, high = interval(shares)
        share = np.clip(credit / count, 0.0, 1.0)
        variance = np.nanvar(np.where(np.isfinite(low), shares, 0.0), axis=0)
        units = np.clip(count**2 / drawn_count.var(), 1.0, count)
        effective = np.where(variance > 0, np.minimum(share * (1 - share) / variance, count), units)
        few = np.isfinite(low) & (np.minimum(credit, count - credit) < FEWEST)
        wilson_low, wilson_high = wilson_interval(share, effective)
    return np.where(few, wilson_low, low), np.where(few, wilson_high, high)


def interval(replicates: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middle 95 % of [replicate, …]; NaN where fewer than 20 replicates are defined."""
    defined = np.isfinite(replicates).sum(axis=0) >= 20
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(np.where(defined, replicates, 0.0), [0.025, 0.975], axis=0)
    return np.where(defined, low, np.nan), np.where(defined, high, np.nan)
