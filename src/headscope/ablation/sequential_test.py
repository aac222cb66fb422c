"""Sequential test of heads: a head whose verdict is clear after a few examples is not evaluated on the rest.

Examples are evaluated in steps. After each step there is a look: the mean change of loss over all examples is estimated
for every head. The gradient terms of all examples are computed beforehand and have two uses:

- Stratified sampling: examples with large terms are sampled more densely, since heads matter most for them.
- Regression: the changes on examples that are not yet evaluated are predicted from their terms.

A head is settled at a look, and is not evaluated further, if both conditions hold:

- It is clear whether its change will be significant on all examples, at the given error rate over all looks.
- The error from not evaluating all examples is at most the standard error that the exact result would have.

A settled head keeps its estimate with its interval. The other heads are evaluated on all examples; their results are
exact. The bounds assume normal distributions; the page of the study states this.
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

FIRST = 32  # examples evaluated before the first look
GROWTH = 1.25  # factor by which the number of evaluated examples grows from look to look
DRAWS = 40_000  # simulated runs: an error rate of 5 % has a standard error of 0.1 percentage points
STRATA = 8  # maximum number of strata
LEAST = 3  # minimum number of evaluated examples of a stratum, at every look


@dataclass(frozen=True)
class SettledHead:
    """Result of a head that was settled after `count` examples.

    value       estimate of the mean change of loss over all examples
    half_width  half the width of its 95 % interval
    p           p-value expected on all examples
    """

    value: float
    half_width: float
    p: float
    count: int

    @property
    def columns(self) -> dict[str, Any]:
        """The value and the ends of its interval, as columns of a table."""
        low, high = self.value - self.half_width, self.value + self.half_width
        return {"value": self.value, "low": low, "high": high}


_UNKNOWN = SettledHead(np.nan, np.nan, np.nan, 0)


class StratifiedSample:
    """The order in which examples are evaluated.

    strata  groups of examples with changes of similar expected size, the largest first; each in random order
    counts  [look, stratum]: number of examples evaluated up to the look; at the last look all of them
    """

    def __init__(self, sizes: NDArray[np.float64], seed: int = 0) -> None:
        """sizes [example]: expected absolute change of loss, up to a common factor."""
        rng, self.population = np.random.default_rng(seed), len(sizes)
        ranked = np.argsort(-sizes, kind="stable")
        groups = np.array_split(ranked, max(1, min(STRATA, self.population // 16)))
        self.strata = [rng.permutation(group) for group in groups]
        stratum_sizes = np.array([len(stratum) for stratum in self.strata])
        # Neyman allocation: examples in proportion to the number in a stratum times the standard deviation in it.
        # The expected changes stand for the standard deviation, so that the product is their sum.
        weights = np.array([float(sizes[stratum].sum()) for stratum in self.strata])
        looks, total = [], float(FIRST)
        while total < 0.75 * self.population:  # beyond that a look saves too little
            looks.append(_allocate(int(total), weights, stratum_sizes))
            total *= GROWTH
        self.counts = np.maximum.accumulate([*looks, stratum_sizes])

    def blocks(self) -> list[list[int]]:
        """For each look, the examples that are evaluated between the previous look and this one."""
        before = np.vstack([np.zeros_like(self.counts[0]), self.counts[:-1]])
        return [
            [
                int(i)
                for items, a, b in zip(self.strata, start, end, strict=True)
                for i in items[a:b]
            ]
            for start, end in zip(before, self.counts, strict=True)
        ]

    def examples(self, look: int) -> list[NDArray[np.int64]]:
        """For each stratum, its examples that are evaluated up to this look."""
        return [stratum[:end] for stratum, end in zip(self.strata, self.counts[look], strict=True)]


@dataclass(frozen=True)
class MeanEstimates:
    """Estimates of the mean changes over all examples, from the examples evaluated so far.

    value   [head]: estimated mean over all examples
    error   [head]: standard error of this estimate, from examples that are not evaluated; 0 if all are
    spread  [head]: standard deviation of the change between examples
    """

    value: NDArray[np.float64]
    error: NDArray[np.float64]
    spread: NDArray[np.float64]

    def settle(self, head: int, evaluated: int, population: int) -> SettledHead:
        """The result of a head after `evaluated` of `population` examples; p is the p-value expected on all."""
        value = float(self.value[head])
        full_error = float(self.spread[head] / np.sqrt(population))  # with all examples evaluated
        # Two independent errors add up. The first: the mean over these examples is only estimated. The second: these
        # examples are a sample themselves; this error remains if all of them are evaluated.
        half_width = float(students_quantile(population) * np.hypot(self.error[head], full_error))
        p = 1.0
        if full_error:
            p = float(2 * stats.t.sf(abs(value) / full_error, max(population - 1, 1)))
        return SettledHead(value, half_width, p, evaluated)


class SequentialTest:
    """State of a sequential test: the live heads, which are still evaluated, and the results of the settled ones.

    terms       [example, head]: gradient terms of all examples (`estimates.gradient`)
    error_rate  allowed probability that the verdict on a head is wrong, over all looks
    """

    def __init__(
        self, heads: Sequence[Head], terms: NDArray[np.float64], error_rate: float, seed: int = 0
    ) -> None:
        self.heads, self.population = tuple(heads), len(terms)
        # First-order change of an ablation, and its square in place of the second-order term: [example, head, 2]
        self.predictors = np.stack([-terms, terms**2], axis=2)
        spread = np.maximum(terms.std(axis=0), 1e-30)
        self.sample = StratifiedSample(np.sqrt(((terms / spread) ** 2).mean(axis=1)), seed)
        sample_sizes = self.sample.counts.sum(axis=1)[:-1]
        self.critical_value = pocock_bound(sample_sizes, self.population, error_rate)
        self.live = list(self.heads)
        self.settled: dict[Head, SettledHead] = {}
        self.significant: set[Head] = set()  # settled heads whose change is significant

    def look(self, number: int, changes: NDArray[np.float64]) -> None:
        """Settle the heads that are clear at this look.

        changes  [example, live head]; values of examples that are not evaluated are ignored
        """
        columns = [self.heads.index(head) for head in self.live]
        estimates = estimate_means(changes, self.predictors[:, columns], self.sample, number)
        surely_significant, surely_not = self._verdicts(estimates, columns)
        is_precise = estimates.error <= estimates.spread / np.sqrt(self.population)
        evaluated = int(self.sample.counts[number].sum())
        for i, head in enumerate(list(self.live)):
            is_significant = surely_significant[columns[i]]
            if is_precise[i] and (is_significant or surely_not[columns[i]]):
                self.settled[head] = estimates.settle(i, evaluated, self.population)
                if is_significant:
                    self.significant.add(head)
                self.live.remove(head)

    def _verdicts(
        self, estimates: MeanEstimates, columns: list[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[head], [head]: surely significant, surely not, for all heads. columns: indices of the live heads."""
        full_error = estimates.spread / np.sqrt(self.population)  # standard error on all examples
        # Bounds of the |t| that each head will have on all examples. Settled heads: infinite if significant, else 0.
        # Live heads: from the interval of their estimate.
        least = np.array([np.inf if head in self.significant else 0.0 for head in self.heads])
        most = least.copy()
        margin = np.array([[-1.0], [1.0]]) * self.critical_value * estimates.error
        bounds = np.maximum(np.abs(estimates.value) + margin, 0)  # [lower and upper, live head]
        least[columns], most[columns] = np.divide(
            bounds, full_error, out=np.zeros_like(bounds), where=full_error > 0
        )
        return verdicts_between(least, most, self.population)

    # Tables

    def rows(self, rows: list[Row]) -> list[Row]:
        """The given rows of heads.csv; settled heads get their estimates for all examples."""
        estimates = [
            self._estimate(row.statistic, Head(row.stack, row.layer, row.head)) for row in rows
        ]
        return [
            row if estimate is None else replace(row, **estimate.columns, count=estimate.count)
            for row, estimate in zip(rows, estimates, strict=True)
        ]

    def significance(self, table: list[TableRow]) -> list[TableRow]:
        """The given rows of significance.csv; settled heads get their results, and all p-values are adjusted again."""
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
        """The result that replaces a settled head's row; None if the row stays.

        The metric of a settled head is unknown: only the loss is estimated.
        """
        if head not in self.settled or statistic not in (LOSS, METRIC):
            return None
        return self.settled[head] if statistic == LOSS else _UNKNOWN


def pocock_bound(sample_sizes: NDArray[np.int64], population_size: int, error_rate: float) -> float:
    """Critical value for repeated looks: |z| exceeds it at any look with probability `error_rate` under the null.

    Simulated rather than Bonferroni, because estimates on growing samples are strongly correlated.
    """
    if not len(sample_sizes):
        return 0.0  # no look before the last one, where results are exact
    rng = np.random.default_rng(0)  # fixed: the bound must not vary between runs
    # Fisher information of a sample of n out of N about the mean over all N (finite-population correction).
    information = sample_sizes / (1 - sample_sizes / population_size)
    scales = np.sqrt(np.diff(information, prepend=0.0))
    increments = rng.normal(size=(DRAWS, len(sample_sizes))) * scales
    z = np.cumsum(increments, axis=1) / np.sqrt(information)  # [draw, look]
    return float(np.quantile(np.abs(z).max(axis=1), 1 - error_rate))


def _allocate(
    total: int, weights: NDArray[np.float64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[stratum]: numbers of examples in proportion to the weights, from LEAST to the size of the stratum."""
    least = np.minimum(sizes, LEAST)
    low, high = 0.0, total / max(float(weights.min()), 1e-30) + 1.0
    # Bisection for the factor at which the clipped numbers add up to the total
    for _ in range(100):
        factor = (low + high) / 2
        if np.clip(factor * weights, least, sizes).sum() < total:
            low = factor
        else:
            high = factor
    return np.clip(np.round(high * weights), least, sizes).astype(np.int64)


def estimate_means(
    changes: NDArray[np.float64],
    predictors: NDArray[np.float64],
    sample: StratifiedSample,
    look: int,
) -> MeanEstimates:
    """Regression estimates of the means over all examples, from the examples evaluated up to a look.

    changes     [example, head]: exact changes; values of examples that are not evaluated are ignored
    predictors  [example, head, predictor]: values of all examples
    """
    evaluated = sample.examples(look)
    total, k = sum(len(items) for items in evaluated), predictors.shape[2]
    shares = np.array([len(stratum) / sample.population for stratum in sample.strata])
    # Correction for the degrees of freedom of the strata's means and of the slopes
    correction = total / max(total - len(evaluated) - k, 1)
    weighted = [
        (np.sqrt(share / len(items)), items) for share, items in zip(shares, evaluated, strict=True)
    ]
    estimates = np.empty((3, predictors.shape[1]))
    for h in range(predictors.shape[1]):
        y, x = changes[:, h], predictors[:, h]
        # One slope per predictor for all strata: regress deviations from the means of the strata.
        target = np.concatenate([w * (y[i] - y[i].mean()) for w, i in weighted])
        regressors = np.concatenate([w * (x[i] - x[i].mean(axis=0)) for w, i in weighted])
        slope = np.linalg.lstsq(regressors, target, rcond=1e-8)[0] if k else np.zeros(0)
        predicted = x @ slope
        variance, squared_error = 0.0, 0.0
        for share, stratum, items in zip(shares, sample.strata, evaluated, strict=True):
            residuals = y[items] - predicted[items]
            predicted[stratum] += residuals.mean()
            within = correction * float(residuals.var(ddof=1)) if len(residuals) > 1 else 0.0
            variance += share * within
            # Variance of a stratified mean, with the finite-population correction 1/n - 1/N (Cochran 1977, chapter 5)
            squared_error += share**2 * within * (1 / len(items) - 1 / len(stratum))
        # Predictions exist for all examples, so their variance is known; the residual variance is from the sample.
        spread = np.sqrt(predicted.var() + variance)
        estimates[:, h] = predicted.mean(), np.sqrt(squared_error), spread
    return MeanEstimates(*estimates)


def verdicts_between(
    least: NDArray[np.float64], most: NDArray[np.float64], count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[head], [head]: surely significant by Holm's rule, surely not, if |t| of each head lies between its bounds.

    Two evaluations of the rule suffice, since it is monotone: if some |t| rise and none falls, every significant head
    stays significant.
    """
    surely, possibly = (
        holm(2 * stats.t.sf(bound, max(count - 1, 1))) < ALPHA for bound in (least, most)
    )
    return surely, ~possibly
