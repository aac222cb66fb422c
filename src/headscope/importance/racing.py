"""Settle clear cases early: heads whose verdict is plain after a few examples are not run on the rest.

What is wanted is the mean change of loss over all examples. Some are run, in random order; the rest is predicted from
what is known of all of them beforehand (a control variate, fitted on the examples that were run), and the finite
number of examples is taken into account. A head is settled when

- whether its change is significant on all examples is clear, at the stated error rate over all heads and looks, and
- its estimate is nearer to the result on all examples than that result's own interval is wide.

The survivors are run on everything and are exact; a settled head keeps its estimate, with its interval.
The bounds are those of the normal distribution, not distribution-free: that is stated where they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from headscope.heads import Head
from headscope.importance.significance import ALPHA, holm
from headscope.tables import Row

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

    @property
    def told(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.value - self.half, "high": self.value + self.half}


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


class Race:
    """Which heads are still run, and what is known of those that are not.

    predictors  [example, head, k] what is known of all examples beforehand
    error_rate  the probability of any wrong verdict, over all heads and looks
    """

    def __init__(self, heads: Sequence[Head], predictors: NDArray[np.float64], error_rate: float) -> None:
        self.heads, self.predictors, self.count = tuple(heads), predictors, len(predictors)
        self.sizes = looks(self.count)
        self.certain = float(stats.norm.isf(error_rate / (2 * len(self.heads) * len(self.sizes))))
        self.live = list(self.heads)
        self.estimates: dict[Head, Estimate] = {}
        self.significant: set[Head] = set()  # of the settled ones

    def look(self, changes: NDArray[np.float64], items: NDArray[np.int64]) -> None:
        """Settle what is clear after the examples `items` [m]; changes [m, head], of the live heads."""
        places = [self.heads.index(head) for head in self.live]
        found = guess(changes, self.predictors[:, places], items)
        sure, never = self._verdicts(found, places)
        is_exact = found.error <= found.spread / np.sqrt(self.count)
        for i, head in enumerate(list(self.live)):
            if is_exact[i] and (sure[places[i]] or never[places[i]]):
                self.estimates[head] = found.estimate(i, len(items), self.count)
                self.live.remove(head)
                if sure[places[i]]:
                    self.significant.add(head)

    def _verdicts(self, found: Guess, places: list[int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[head], of all heads: surely significant, surely not."""
        final = found.spread / np.sqrt(self.count)  # the standard error that the result on all examples will have
        least = np.array([np.inf if head in self.significant else 0.0 for head in self.heads])
        most = least.copy()
        sign = np.array([-1.0, 1.0])[:, None]
        bounds = np.abs(found.value) + sign * self.certain * found.error
        least[places], most[places] = np.divide(
            np.maximum(bounds, 0), final, out=np.zeros_like(bounds), where=final > 0
        )
        return clear(least, most, self.count)

    # Tables

    def rows(self, rows: list[Row], statistic: str) -> list[Row]:
        """heads.csv's rows with the settled heads' estimates of all examples for what was found on some."""
        found = []
        for row in rows:
            head = Head(row.stack, row.layer, row.head)
            is_mine = row.statistic == statistic and head in self.estimates
            found.append(replace(row, **self.estimates[head].told) if is_mine else row)
        return found

    def significance(self, table: list[dict[str, Any]], statistic: str) -> list[dict[str, Any]]:
        """significance.csv's rows with the settled heads' estimates and p-values, all adjusted anew."""
        of_mine = [row for row in table if row["statistic"] == statistic]
        for row in of_mine:
            one = self.estimates.get(Head(row["stack"], row["layer"], row["head"]))
            if one is not None:
                row |= one.told | {"p": one.p, "test": "race", "settled_at": one.count}
        for row, p in zip(of_mine, holm(np.array([row["p"] for row in of_mine])), strict=True):
            row |= {"p_adjusted": float(p), "is_significant": bool(p < ALPHA)}
        return table


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


def clear(
    least: NDArray[np.float64], most: NDArray[np.float64], count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[head]: who is surely significant by Holm's rule and who surely is not, where each |t| lies between two bounds.

    The rule is monotone: when no |t| falls, nobody who was significant ceases to be.
    """
    sure, may = (holm(2 * stats.t.sf(bound, max(count - 1, 1))) < ALPHA for bound in (least, most))
    return sure, ~may
