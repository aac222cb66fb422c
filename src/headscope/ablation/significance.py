"""Paired tests and intervals for changes of loss and metric, with correction for multiple testing.

Losses and other means   paired t-test and Student's interval: p is below 0.05 exactly if the interval excludes 0
Accuracies               McNemar's exact test on the examples whose answer became right or wrong
Other metrics            normal test with the standard error of a paired bootstrap. The error has a lower bound: that of
                         one more prediction that improves and one more that worsens

p-values are adjusted by Holm's rule, which is valid under any dependence between heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from headscope.tables import Moments, Z
from headscope.tasks.base import Judged, Task
from headscope.tasks.metrics import BOUNDS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ALPHA = 0.05
REPLICATES = 200  # bootstrap resamples: the standard error is then accurate to about 5 %


@dataclass(frozen=True)
class Delta:
    """A change with its 95 % interval and p-value. test: name of the test."""

    value: float
    low: float
    high: float
    p: float
    test: str
    count: int


def students_quantile(count: ArrayLike) -> NDArray[np.float64]:
    """Half-width of a 95 % interval of the mean of `count` values, in standard errors; 1.96 for many values."""
    degrees = np.maximum(np.asarray(count) - 1, 1)
    return np.asarray(stats.t.ppf(1 - ALPHA / 2, degrees), dtype=np.float64)


def students_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Student's 95 % interval of the mean of a few values, such as results by seed; NaN for a single value."""
    count = len(values)
    if count < 2:
        return float("nan"), float("nan")
    half = float(students_quantile(count) * values.std(ddof=1) / np.sqrt(count))
    return float(values.mean()) - half, float(values.mean()) + half


def delta_of_losses(intact: NDArray[np.float64], changed: NDArray[np.float64]) -> Delta:
    """The mean change of the loss: Student's interval, and a paired t-test."""
    return _mean_delta(changed - intact, "paired t")


def delta_of_metric(
    task: Task,
    intact: NDArray[np.float64],
    changed: NDArray[np.float64],
    draws: NDArray[np.int64] | None = None,
    before: NDArray[np.float64] | None = None,
) -> Delta:
    """The change of the task's metric, from scores [item, column].

    draws   resamples of the items (`resamples`), for metrics that are not means
    before  the intact model's metric on each resample, if computed already
    """
    name, column = task.metrics[0], task.mean_column
    value = task.measure(changed)[name] - task.measure(intact)[name]
    if column is not None:
        difference = changed[:, column] - intact[:, column]
        if set(np.unique(intact[:, column])) | set(np.unique(changed[:, column])) <= {0.0, 1.0}:
            worse, better = int((difference < 0).sum()), int((difference > 0).sum())
            p = float(stats.binomtest(worse, worse + better).pvalue) if worse + better else 1.0
            low, high = paired_share_interval(worse, better, len(difference))
            return Delta(float(difference.mean()), low, high, p, "McNemar", len(difference))
        delta = _mean_delta(difference, "paired t")
        # Without any change Student's interval would be [0, 0]. Use the interval of an accuracy without changes.
        if not difference.any() and BOUNDS.get(name) == (0.0, 1.0):
            low, high = paired_share_interval(0, 0, len(difference))
            return replace(delta, low=low, high=high)
        return delta
    if draws is None or len(intact) < 2 or not np.isfinite(value):
        return Delta(value, np.nan, np.nan, np.nan, "-", len(intact))
    before = metric_on(task, intact, draws) if before is None else before
    sampled = metric_on(task, changed, draws) - before
    sampled = sampled[np.isfinite(sampled)]
    error = float(sampled.std(ddof=1)) if len(sampled) > 1 else np.nan
    # A bootstrap cannot draw changes that did not occur, and would give too small an error if few predictions changed.
    # As Bonett and Price do for accuracies, assume one more prediction that improved and one more that worsened. These
    # are two independent changes, hence the root of 2.
    error = max(error, np.sqrt(2) * task.change_of_one(intact))
    p = float(2 * stats.norm.sf(abs(value) / error)) if error > 0 else 1.0
    least, most = BOUNDS.get(name, (-np.inf, np.inf))
    low, high = max(value - Z * error, least - most), min(value + Z * error, most - least)
    return Delta(value, low, high, p, "bootstrap", len(intact))


def paired_share_interval(worse: int, better: int, count: int) -> tuple[float, float]:
    """95 % interval of (better − worse) / count, a change of accuracy on the same examples.

    Bonett and Price (2012): the normal interval after adding one answer that worsened and one that improved. Otherwise
    the interval would be [0, 0] if no answer changed. NaN for a single example.
    """
    if count < 2:
        return float("nan"), float("nan")
    down, up = (worse + 1) / (count + 2), (better + 1) / (count + 2)
    half = Z * float(np.sqrt((down + up - (up - down) ** 2) / (count + 2)))
    return max(up - down - half, -1.0), min(up - down + half, 1.0)


def metric_on(
    task: Task, scores: NDArray[np.float64], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The task's metric on each resample."""
    return np.array([task.measure(scores[draw])[task.metrics[0]] for draw in draws])


def resamples(count: int, seed: int, replicates: int = REPLICATES) -> NDArray[np.int64]:
    """[replicate, item]: resamples of items, the same for all heads, so that heads can be compared."""
    return np.random.default_rng(seed).integers(0, count, size=(replicates, count))


def resamples_for(task: Task, count: int) -> NDArray[np.int64] | None:
    """Resamples for the interval of the task's metric; None if the metric is a mean, which has Student's interval."""
    return None if task.mean_column is not None else resamples(count, 0)


def _mean_delta(difference: NDArray[np.float64], test: str) -> Delta:
    """The mean of the differences, with Student's interval and a paired t-test."""
    count = len(difference)
    mean = float(difference.mean())
    if count < 2:
        return Delta(mean, np.nan, np.nan, np.nan, test, count)
    error = float(difference.std(ddof=1)) / np.sqrt(count)
    if error == 0:
        return Delta(mean, mean, mean, 1.0 if mean == 0 else 0.0, test, count)
    p = float(2 * stats.t.sf(abs(mean) / error, count - 1))
    half = float(students_quantile(count)) * error
    return Delta(mean, mean - half, mean + half, p, test, count)


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's adjusted p-values; NaN stays NaN and does not count as a test."""
    adjusted = np.full(len(p_values), np.nan)
    finite = np.flatnonzero(np.isfinite(p_values))
    order = finite[np.argsort(p_values[finite], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


def least_significant(
    lows: ArrayLike, highs: ArrayLike, count: int, *, tests: int | None = None
) -> float:
    """The smallest mean change of the median head that a paired t-test would find significant, after Holm's rule.

    lows, highs  [head]: Student's intervals of a mean over `count` examples; NaN if unknown
    tests        number of tested heads; by default those with an interval
    """
    widths = np.asarray(highs, dtype=float) - np.asarray(lows, dtype=float)
    errors = widths / (2 * students_quantile(count))
    errors = errors[np.isfinite(errors)]
    if not errors.size or count < 2:
        return float("nan")
    quantile = stats.t.ppf(1 - ALPHA / (2 * (tests or errors.size)), count - 1)
    return float(np.median(errors) * quantile)


def metrics_of(task: Task, judged: Judged, seed: int = 0) -> dict[str, dict[str, float | None]]:
    """Each metric and the loss, with value, low and high of a 95 % interval; None if undefined.

    The loss and metrics that are means have the interval of a mean (accuracies: Wilson's); other metrics have a
    bootstrap interval, clipped to the bounds of the metric.
    """
    values = task.measure(judged.scores)
    draws = resamples(len(judged.scores), seed, 200)
    resampled = [task.measure(judged.scores[draw]) for draw in draws]
    result = {"loss": _mean(judged.losses)}
    for i, (name, value) in enumerate(values.items()):
        if i == 0 and task.mean_column is not None:
            result[name] = _mean(judged.scores[:, task.mean_column], name)
        else:
            defined = [metrics[name] for metrics in resampled if np.isfinite(metrics[name])]
            half = Z * float(np.std(defined, ddof=1)) if len(defined) > 1 else np.nan
            result[name] = _clip_interval(value, half, name, len(judged.scores))
    return result


def _mean(values: NDArray[np.float64], name: str = "loss") -> dict[str, float | None]:
    moments = Moments(())
    moments.add(values)
    low, high = moments.interval(is_share=BOUNDS.get(name) == (0.0, 1.0))
    return _finite(float(values.mean()), float(low), float(high))


def _clip_interval(value: float, half: float, name: str, count: int) -> dict[str, float | None]:
    """The interval value ± half, clipped to the metric's bounds.

    If all resamples gave the same value (half is 0), the interval is computed like that of a share with equal values
    (`tables.share_interval`), since [value, value] would be too narrow.
    """
    least, most = BOUNDS.get(name, (-np.inf, np.inf))
    if half == 0 and np.isfinite([least, most]).all():
        others = Z**2 / (count + Z**2)
        return _finite(value, value - (value - least) * others, value + (most - value) * others)
    return _finite(value, max(value - half, least), min(value + half, most))


def _finite(value: float, low: float, high: float) -> dict[str, float | None]:
    columns = {"value": value, "low": low, "high": high}
    return {name: number if np.isfinite(number) else None for name, number in columns.items()}
