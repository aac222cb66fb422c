"""Sequential test of heads: those whose verdict is clear after a few examples are not evaluated on the rest.

The mean change of loss over all examples is estimated. Gradient terms are known for all examples beforehand and serve
twice. They say for which examples heads matter; these are sampled more densely (stratified sampling). And they predict
the examples that are not evaluated (a regression on those that are). A head is settled when

- it is clear whether its change is significant on all examples, at the given error rate over all looks, and
- the standard error of its estimate is at most that of the result on all examples.

Remaining heads are evaluated on all examples and are exact; a settled head keeps its estimate with its interval.
The bounds assume normal distributions; the page says so.
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
from headscope.tables import Row, TableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST = 32  # examples of the first look
GROWTH = 1.25  # of the number of examples from look to look
DRAWS = 40_000  # simulated runs: an error rate of 5 % has a standard error of 0.1 percentage points
STRATA, LEAST = 8, 3  # number of strata, and examples of each at the first look


@dataclass(frozen=True)
class SettledHead:
    """Estimate for a head that was settled after `count` examples: mean change over all, half-width of the interval."""

    value: float
    half_width: float
    p: float
    count: int

    @property
    def columns(self) -> dict[str, Any]:
        low, high = self.value - self.half_width, self.value + self.half_width
        return {"value": self.value, "low": low, "high": high}


_UNKNOWN = SettledHead(np.nan, np.nan, np.nan, 0)


class StratifiedSample:
    """The order in which examples are evaluated.

    strata  the examples in groups of similar size, the largest first, each in random order
    counts  [look, stratum]: examples of each that are evaluated by then; all of them at the last look
    """

    def __init__(self, sizes: NDArray[np.float64], seed: int = 0) -> None:
        """sizes [example]: about proportional to what is unknown of each."""
        rng, self.population = np.random.default_rng(seed), len(sizes)
        ranked = np.argsort(-sizes, kind="stable")
        parts = np.array_split(ranked, max(1, min(STRATA, self.population // 16)))
        self.strata = [rng.permutation(part) for part in parts]
        whole = np.array([len(part) for part in self.strata])
        # Neyman allocation: examples in proportion to a stratum's size times its spread, here their sum of sizes
        weights = np.array([float(sizes[part].sum()) for part in self.strata])
        looks, total = [], float(FIRST)
        while total < 0.75 * self.population:  # beyond that a look saves too little
            looks.append(_allocate(int(total), weights, whole))
            total *= GROWTH
        self.counts = np.maximum.accumulate([*looks, whole])

    def blocks(self) -> list[list[int]]:
        """The examples that each look adds."""
        before = np.vstack([np.zeros_like(self.counts[0]), self.counts[:-1]])
        return [
            [int(i) for part, a, b in zip(self.strata, start, end, strict=True) for i in part[a:b]]
            for start, end in zip(before, self.counts, strict=True)
        ]

    def examples(self, look: int) -> list[NDArray[np.int64]]:
        """The examples of each stratum that are evaluated by then."""
        return [part[:end] for part, end in zip(self.strata, self.counts[look], strict=True)]


@dataclass(frozen=True)
class MeanEstimates:
    """Estimates of mean changes over all examples, from those evaluated so far.

    value   [head] estimate of the mean over all N examples
    error   [head] its standard error; 0 when all are evaluated
    spread  [head] standard deviation between examples
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    spread: NDArray[np.float64]

    def settle(self, head: int, evaluated: int, population: int) -> SettledHead:
        """The estimate after some examples; its p-value is the one predicted for all examples."""
        # The interval has two parts: of the estimate about these examples, and of these examples about the true mean.
        value, final = float(self.value[head]), float(self.spread[head] / np.sqrt(population))
        half = float(students_quantile(population) * np.hypot(self.error[head], final))
        p = float(2 * stats.t.sf(abs(value) / final, max(population - 1, 1))) if final else 1.0
        return SettledHead(value, half, p, evaluated)


class SequentialTest:
    """Which heads are still evaluated, and the estimates of those that are settled.

    terms       [example, head] of the gradient, for all examples
    error_rate  the probability that a head's verdict is wrong, over all looks
    """

    def __init__(
        self, heads: Sequence[Head], terms: NDArray[np.float64], error_rate: float, seed: int = 0
    ) -> None:
        self.heads, self.population = tuple(heads), len(terms)
        # First-order change of an ablation, and its square as a proxy for the second order: [example, head, 2]
        self.predictors = np.stack([-terms, terms**2], axis=2)
        spread = np.maximum(terms.std(axis=0), 1e-30)
        self.sample = StratifiedSample(np.sqrt(((terms / spread) ** 2).mean(axis=1)), seed)
        sample_sizes = self.sample.counts.sum(axis=1)[:-1]
        self.critical_value = pocock_bound(sample_sizes, self.population, error_rate)
        self.live = list(self.heads)
        self.settled: dict[Head, SettledHead] = {}
        self.significant: set[Head] = set()  # among the settled ones

    def look(self, number: int, changes: NDArray[np.float64]) -> None:
        """Settle what is clear by then. changes: [example, live head], any value where not evaluated."""
        columns = [self.heads.index(head) for head in self.live]
        estimates = estimate_means(changes, self.predictors[:, columns], self.sample, number)
        surely_significant, surely_not = self._verdicts(estimates, columns)
        is_near = estimates.error <= estimates.spread / np.sqrt(self.population)
        evaluated = int(self.sample.counts[number].sum())
        for i, head in enumerate(list(self.live)):
            is_significant = surely_significant[columns[i]]
            if is_near[i] and (is_significant or surely_not[columns[i]]):
                self.settled[head] = estimates.settle(i, evaluated, self.population)
                if is_significant:
                    self.significant.add(head)
                self.live.remove(head)

    def _verdicts(
        self, estimates: MeanEstimates, columns: list[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[head], of all heads: surely significant, surely not. columns: of the live heads."""
        final = estimates.spread / np.sqrt(self.population)  # standard error on all examples
        # Bounds of |t| on all examples: inf if settled as significant, 0 if settled as not, an interval if still live.
        least = np.array([np.inf if head in self.significant else 0.0 for head in self.heads])
        most = least.copy()
        margin = np.array([[-1.0], [1.0]]) * self.critical_value * estimates.error
        bounds = np.maximum(np.abs(estimates.value) + margin, 0)  # [lower and upper, live head]
        least[columns], most[columns] = np.divide(
            bounds, final, out=np.zeros_like(bounds), where=final > 0
        )
        return verdicts_between(least, most, self.population)

    # Tables

    def rows(self, rows: list[Row]) -> list[Row]:
        """Rows of heads.csv, with estimates for all examples in the rows of settled heads."""
        estimates = [
            self._estimate(row.statistic, Head(row.stack, row.layer, row.head)) for row in rows
        ]
        return [
            row if estimate is None else replace(row, **estimate.columns, count=estimate.count)
            for row, estimate in zip(rows, estimates, strict=True)
        ]

    def significance(self, table: list[TableRow]) -> list[TableRow]:
        """Rows of significance.csv with estimates and p-values of settled heads; all p-values are adjusted again."""
        for row in table:
            head = Head(row["stack"], row["layer"], row["head"])  # type: ignore[arg-type]
            estimate = self._estimate(row["statistic"], head)
            if estimate is not None:
                row |= estimate.columns
                row |= {"p": estimate.p, "test": "sequential", "count": estimate.count}
                row["settled_at"] = estimate.count if row["statistic"] == LOSS else None
        for name in (LOSS, METRIC):
            tests = [row for row in table if row["statistic"] == name]
            for row, p in zip(tests, holm(np.array([row["p"] for row in tests])), strict=True):
                row["p_adjusted"] = float(p)
                row["is_significant"] = bool(p < ALPHA) if np.isfinite(p) else None
        return table

    def _estimate(self, statistic: object, head: Head) -> SettledHead | None:
        """What replaces the value of a settled head; its metric is unknown, since a few examples hardly change it."""
        if head not in self.settled or statistic not in (LOSS, METRIC):
            return None
        return self.settled[head] if statistic == LOSS else _UNKNOWN


def pocock_bound(sample_sizes: NDArray[np.int64], population_size: int, error_rate: float) -> float:
    """Critical value for repeated looks: |z| exceeds it at any look with probability `error_rate` under the null.

    Simulated rather than Bonferroni, because estimates on growing samples are strongly correlated.
    """
    if not len(sample_sizes):
        return 0.0
    rng = np.random.default_rng(0)  # fixed: the bound must not vary between runs
    # Fisher information of a sample of n out of N about the mean over all N (finite-population correction).
    information = sample_sizes / (1 - sample_sizes / population_size)
    scales = np.sqrt(np.diff(information, prepend=0.0))
    increments = rng.normal(size=(DRAWS, len(sample_sizes))) * scales
    z = np.cumsum(increments, axis=1) / np.sqrt(information)  # [draw, look]
    return float(np.quantile(np.abs(z).max(axis=1), 1 - error_rate))


def _allocate(
    total: int, weights: NDArray[np.float64], whole: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[stratum]: examples by weight, at most as many as it has and at least LEAST."""
    least = np.minimum(whole, LEAST)
    low, high = 0.0, total / max(float(weights.min()), 1e-30) + 1.0
    for _ in range(100):  # bisection for the factor at which the clipped counts add up to the total
        factor = (low + high) / 2
        if np.clip(factor * weights, least, whole).sum() < total:
            low = factor
        else:
            high = factor
    return np.clip(np.round(high * weights), least, whole).astype(np.int64)


def estimate_means(
    changes: NDArray[np.float64],
    predictors: NDArray[np.float64],
    sample: StratifiedSample,
    look: int,
) -> MeanEstimates:
    """Regression estimates of the means over all examples, from those evaluated by a look.

    changes     [example, head] the exact changes; any value where not evaluated
    predictors  [example, head, k] known for all examples
    """
    evaluated = sample.examples(look)
    total, k = sum(len(items) for items in evaluated), predictors.shape[2]
    shares = np.array([len(part) / sample.population for part in sample.strata])
    # Correction for the degrees of freedom of the strata's means and of the slopes
    correction = total / max(total - len(evaluated) - k, 1)
    weighted = [
        (np.sqrt(share / len(items)), items) for share, items in zip(shares, evaluated, strict=True)
    ]
    estimates = np.empty((3, predictors.shape[1]))
    for h in range(predictors.shape[1]):
        y, x = changes[:, h], predictors[:, h]
        # Slopes common to all strata: regress deviations from the stratum's mean.
        target = np.concatenate([w * (y[i] - y[i].mean()) for w, i in weighted])
        regressors = np.concatenate([w * (x[i] - x[i].mean(axis=0)) for w, i in weighted])
        slope = np.linalg.lstsq(regressors, target, rcond=1e-8)[0] if k else np.zeros(0)
        predicted = x @ slope
        variance, squared_error = 0.0, 0.0
        for share, part, items in zip(shares, sample.strata, evaluated, strict=True):
            residuals = y[items] - predicted[items]
            predicted[part] += residuals.mean()
            within = correction * float(residuals.var(ddof=1)) if len(residuals) > 1 else 0.0
            variance += share * within
            # Variance of a stratified mean, with the finite-population correction 1/n - 1/N (Cochran 1977, chapter 5)
            squared_error += share**2 * within * (1 / len(items) - 1 / len(part))
        # Predictions vary as they do over all examples; only the residuals' variance is estimated from the sample.
        spread = np.sqrt(predicted.var() + variance)
        estimates[:, h] = predicted.mean(), np.sqrt(squared_error), spread
    return MeanEstimates(*estimates)


def verdicts_between(
    least: NDArray[np.float64], most: NDArray[np.float64], count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[head]: surely significant by Holm's rule, surely not, if each |t| lies between two bounds.

    The rule is monotone: while no |t| falls, no head ceases to be significant.
    """
    surely, possibly = (
        holm(2 * stats.t.sf(bound, max(count - 1, 1))) < ALPHA for bound in (least, most)
    )
    return surely, ~possibly
