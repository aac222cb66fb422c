"""Settle clear cases early: heads whose verdict is plain after a few examples are not run on the rest.

What is wanted is the mean change of loss over all examples. The gradient's terms are known for all of them beforehand,
and serve twice. They say for which examples heads matter: these are run more densely (a stratified sample, since the
others can hardly surprise). And they predict the examples that are not run (a regression, fitted on those that are).
A head is settled when

- whether its change is significant on all examples is clear, at the stated error rate over all looks, and
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

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.significance import ALPHA, holm, students_quantile
from headscope.heads import Head
from headscope.tables import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST = 32  # examples of the first look
GROWTH = 1.25
DRAWS = 40_000
STRATA, LEAST = 8, 3  # and examples of each that are run at the first look


@dataclass(frozen=True)
class SettledHead:
    """Of a head that was settled after `count` examples: its mean change over all, the interval's half, the p-value."""

    value: float
    half: float
    p: float
    count: int

    @property
    def told(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.value - self.half, "high": self.value + self.half}


_UNKNOWN = SettledHead(np.nan, np.nan, np.nan, 0)


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

    def estimate(self, head: int, run: int, count: int) -> SettledHead:
        """After `run` of `count` examples. The interval holds what the guess adds; the p-value is the one foretold."""
        value, final = float(self.value[head]), float(self.spread[head] / np.sqrt(count))
        half = float(students_quantile(count) * np.hypot(self.error[head], final))
        p = float(2 * stats.t.sf(abs(value) / final, max(count - 1, 1))) if final else 1.0
        return SettledHead(value, half, p, run)


class Design:
    """In which order examples are run.

    strata  the examples in groups of like size, the largest first, each in random order
    taken   [look, stratum]: how many of each are run by then; all of them at the last look
    """

    def __init__(self, sizes: NDArray[np.float64], seed: int = 0) -> None:
        """sizes: of each example, about in proportion to what is not known of it."""
        chance, count = np.random.default_rng(seed), len(sizes)
        ranked = np.argsort(-sizes, kind="stable")
        self.count = count
        self.strata = [
            chance.permutation(part)
            for part in np.array_split(ranked, max(1, min(STRATA, count // 16)))
        ]
        whole = np.array([len(part) for part in self.strata])
        weights = np.array([float(sizes[part].sum()) for part in self.strata])
        looks, size = [], float(FIRST)
        while size < 0.75 * count:
            looks.append(_shared_out(int(size), weights, whole))
            size *= GROWTH
        self.taken = np.maximum.accumulate([*looks, whole])

    def blocks(self) -> list[list[int]]:
        """The examples that each look adds."""
        before = np.vstack([np.zeros_like(self.taken[0]), self.taken[:-1]])
        return [
            [int(i) for part, a, b in zip(self.strata, start, end, strict=True) for i in part[a:b]]
            for start, end in zip(before, self.taken, strict=True)
        ]

    def run(self, look: int) -> list[NDArray[np.int64]]:
        """The examples of each stratum that are run by then."""
        return [part[:end] for part, end in zip(self.strata, self.taken[look], strict=True)]


class Race:
    """Which heads are still run, and what is known of those that are not.

    terms       [example, head] the gradient's, of all examples
    error_rate  the probability that a head's verdict is wrong, over all looks
    """

    def __init__(
        self, heads: Sequence[Head], terms: NDArray[np.float64], error_rate: float, seed: int = 0
    ) -> None:
        self.heads, self.count = tuple(heads), len(terms)
        self.predictors = np.stack([-terms, terms**2], axis=2)
        spread = np.maximum(terms.std(axis=0), 1e-30)
        self.design = Design(np.sqrt(((terms / spread) ** 2).mean(axis=1)), seed)
        self.certain = certain(self.design.taken.sum(axis=1)[:-1], self.count, error_rate)
        self.live = list(self.heads)
        self.estimates: dict[Head, SettledHead] = {}
        self.significant: set[Head] = set()  # of the settled ones

    def look(self, number: int, changes: NDArray[np.float64]) -> None:
        """Settle what is clear by then; changes [example, head] of the live heads, anything where it was not run."""
        places = [self.heads.index(head) for head in self.live]
        found = guess(changes, self.predictors[:, places], self.design, number)
        sure, never = self._verdicts(found, places)
        is_near = found.error <= found.spread / np.sqrt(self.count)
        run = int(self.design.taken[number].sum())
        for i, head in enumerate(list(self.live)):
            if is_near[i] and (sure[places[i]] or never[places[i]]):
                self.estimates[head] = found.estimate(i, run, self.count)
                if sure[places[i]]:
                    self.significant.add(head)
                self.live.remove(head)

    def _verdicts(
        self, found: Guess, places: list[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[head], of all heads: surely significant, surely not."""
        # The standard error that the result on all examples will have
        final = found.spread / np.sqrt(self.count)
        least = np.array([np.inf if head in self.significant else 0.0 for head in self.heads])
        most = least.copy()
        bounds = np.abs(found.value) + np.array([[-1.0], [1.0]]) * self.certain * found.error
        least[places], most[places] = np.divide(
            np.maximum(bounds, 0), final, out=np.zeros_like(bounds), where=final > 0
        )
        return clear(least, most, self.count)

    # Tables

    def rows(self, rows: list[Row]) -> list[Row]:
        """heads.csv's rows with the settled heads' estimates of all examples for what was found on some."""
        return [
            row if one is None else replace(row, **one.told, count=one.count)
            for row in rows
            for one in [self._estimate(row.statistic, Head(row.stack, row.layer, row.head))]
        ]

    def significance(self, table: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """significance.csv's rows with the settled heads' estimates and p-values, all adjusted anew."""
        for row in table:
            one = self._estimate(row["statistic"], Head(row["stack"], row["layer"], row["head"]))
            if one is not None:
                row |= one.told | {"p": one.p, "test": "race", "count": one.count}
                row["settled_at"] = one.count if row["statistic"] == LOSS else None
        for name in (LOSS, METRIC):
            mine = [row for row in table if row["statistic"] == name]
            for row, p in zip(mine, holm(np.array([row["p"] for row in mine])), strict=True):
                row |= {
                    "p_adjusted": float(p),
                    "is_significant": bool(p < ALPHA) if np.isfinite(p) else None,
                }
        return table

    def _estimate(self, statistic: str, head: Head) -> SettledHead | None:
        """What stands for a settled head's own value: its metric is not known, which a few examples hardly change."""
        if head not in self.estimates or statistic not in (LOSS, METRIC):
            return None
        return self.estimates[head] if statistic == LOSS else _UNKNOWN


def certain(sizes: NDArray[np.int64], count: int, error_rate: float) -> float:
    """So many standard errors from the truth is none of the estimates after these numbers of examples, but for chance.

    Looks at growing samples are much alike, so that this is less than Bonferroni's bound: it is drawn by lot from what
    estimates of independent examples would do (Pocock's bound, of a finite number of examples).
    """
    if not len(sizes):
        return 0.0
    known = sizes / (1 - sizes / count)  # information about the result on all examples
    steps = np.random.default_rng(0).normal(size=(DRAWS, len(sizes))) * np.sqrt(
        np.diff(known, prepend=0.0)
    )
    far = np.abs(np.cumsum(steps, axis=1) / np.sqrt(known)).max(axis=1)
    return float(np.quantile(far, 1 - error_rate))


def _shared_out(
    total: int, weights: NDArray[np.float64], whole: NDArray[np.int64]
) -> NDArray[np.int64]:
    """So many examples among strata by their weights, none more than it has and none fewer than LEAST."""
    least = np.minimum(whole, LEAST)
    low, high = 0.0, total / max(float(weights.min()), 1e-30) + 1.0
    for _ in range(100):  # the factor by which all weights become numbers that add up
        factor = (low + high) / 2
        low, high = (
            (factor, high)
            if np.clip(factor * weights, least, whole).sum() < total
            else (low, factor)
        )
    found: NDArray[np.int64] = np.clip(np.round(high * weights), least, whole).astype(np.int64)
    return found


def guess(
    changes: NDArray[np.float64], predictors: NDArray[np.float64], design: Design, look: int
) -> Guess:
    """Estimates for all examples from those that are run by then.

    changes     [example, head] the exact changes; anything where it was not run
    predictors  [example, head, k] what is known of all examples
    """
    run = design.run(look)
    total, known = sum(len(items) for items in run), predictors.shape[2]
    shares = np.array([len(part) / design.count for part in design.strata])
    # Degrees of freedom that the means and slopes took
    spare = total / max(total - len(run) - known, 1)
    found = np.empty((3, predictors.shape[1]))
    for h in range(predictors.shape[1]):
        y, x = changes[:, h], predictors[:, h]
        heavy = [np.sqrt(share / len(items)) for share, items in zip(shares, run, strict=True)]
        target = np.concatenate([w * (y[i] - y[i].mean()) for w, i in zip(heavy, run, strict=True)])
        given = np.concatenate(
            [w * (x[i] - x[i].mean(axis=0)) for w, i in zip(heavy, run, strict=True)]
        )
        slope = np.linalg.lstsq(given, target, rcond=1e-8)[0] if known else np.zeros(0)
        foretold = x @ slope
        variance, unsure = 0.0, 0.0
        for share, part, items in zip(shares, design.strata, run, strict=True):
            rest = y[items] - foretold[items]
            foretold[part] += rest.mean()
            own = spare * float(rest.var(ddof=1)) if len(rest) > 1 else 0.0
            variance += share * own
            unsure += share**2 * own * (1 / len(items) - 1 / len(part))
        # What is foretold varies as it does over all examples; only the rest is known from a few.
        found[:, h] = foretold.mean(), np.sqrt(unsure), np.sqrt(foretold.var() + variance)
    return Guess(*found)


def clear(
    least: NDArray[np.float64], most: NDArray[np.float64], count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[head]: who is surely significant by Holm's rule and who surely is not, where each |t| lies between two bounds.

    The rule is monotone: when no |t| falls, nobody who was significant ceases to be.
    """
    sure, may = (holm(2 * stats.t.sf(bound, max(count - 1, 1))) < ALPHA for bound in (least, most))
    return sure, ~may
