"""Settle clear cases early: heads whose verdict is plain after a few examples are not run on the rest.

What is wanted is the mean change of loss over all examples. Some are run, in random order; the rest is predicted from
the gradient's terms, which are known for all of them (a control variate, fitted on the examples that were run), and the
finite number of examples is taken into account. A head is settled when

- whether its change is significant on all examples is clear, at the stated error rate over all heads and looks, and
- its estimate is nearer to the result on all examples than that result's own interval is wide.

The survivors are run on everything and are exact; a settled head keeps its estimate, with its interval.
The bounds are those of the normal distribution, not distribution-free: that is stated where they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from headscope.importance.significance import ALPHA

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST = 64  # examples of the first look
GROWTH = 1.6


@dataclass(frozen=True)
class Estimate:
    """Of a head that was settled after `count` examples: its mean change over all, the interval's half, the p-value."""

    value: float
    half: float
    p: float
    count: int


@dataclass(frozen=True)
class Guess:
    """Of every head: the mean change over all examples, its standard error as a guess, and the spread of examples.

    value   [head] estimate of the mean over all N examples
    error   [head] its standard error as an estimate of that; 0 where all were run
    spread  [head] standard deviation between examples
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    spread: NDArray[np.float64]

    def estimate(self, head: int, run: int, count: int) -> Estimate:
        """After `run` of `count` examples. The interval holds what the guess adds; the p-value is the one foretold."""
        value, final = float(self.value[head]), float(self.spread[head] / np.sqrt(count))
        half = 1.96 * float(np.hypot(self.error[head], final))
        return Estimate(value, half, float(2 * stats.norm.sf(abs(value) / final)) if final else 1.0, run)


def looks(count: int) -> list[int]:
    """How many examples there are at each look; the last is all of them."""
    sizes, size = [], float(FIRST)
    while size < 0.75 * count:
        sizes.append(int(size))
        size *= GROWTH
    return [*sizes, count]


def guess(changes: NDArray[np.float64], predictors: NDArray[np.float64], items: NDArray[np.int64]) -> Guess:
    """Estimates from the examples that were run.

    changes     [m, head] the exact changes of the examples `items` [m]
    predictors  [example, head, k] what is known of all examples
    """
    count, heads, _ = predictors.shape
    m = len(items)
    value, error, spread = np.empty(heads), np.empty(heads), np.empty(heads)
    for h in range(heads):
        y, known = changes[:, h], predictors[:, h]
        x = known[items]
        centred = x - x.mean(axis=0)
        slope, *_ = np.linalg.lstsq(centred, y - y.mean(), rcond=1e-8)
        rest = y - y.mean() - centred @ slope
        variance = float(rest @ rest) / max(m - 1 - centred.shape[1], 1)
        value[h] = y.mean() + (known.mean(axis=0) - x.mean(axis=0)) @ slope
        error[h] = np.sqrt(variance * (1 - m / count) / m)
        # What the predictors explain varies as they do over all examples; only the rest is known from a few.
        spread[h] = np.sqrt(np.var(known @ slope) + variance)
    return Guess(value, error, spread)


def settled(found: Guess, count: int, *, error_rate: float, looks_planned: int, heads: int) -> NDArray[np.bool_]:
    """[head]: whose verdict is clear and whose estimate is as good as the result's own interval.

    heads  how many there were at the beginning: over so many the error rate and Holm's correction are spread
    """
    certain = stats.norm.isf(error_rate / (2 * heads * looks_planned))
    final = found.spread / np.sqrt(count)  # the standard error that the result on all examples will have
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.maximum(np.abs(found.value) - certain * found.error, 0) / final
        most = (np.abs(found.value) + certain * found.error) / final
    # Holm's threshold lies between that for the first of all heads and that for the last that may be significant.
    strictest = stats.norm.isf(ALPHA / (2 * heads))
    possible = int((most >= stats.norm.isf(ALPHA / 2)).sum()) + heads - len(most)
    mildest = stats.norm.isf(ALPHA / (2 * max(heads - possible + 1, 1)))
    clear = (least > strictest) | (most < mildest) | (final == 0)
    result: NDArray[np.bool_] = clear & (found.error <= final)
    return result
