"""Agreement of estimates with exact ablation: rank correlations, noise ceilings, and the stability of ranks.

The exact ranking is itself noisy: rankings from two halves of the data differ. The noise ceiling is the correlation
that the true importances would reach with it: the square root of the split-half reliability, corrected to all examples
(Spearman-Brown). An estimate from the same examples shares their noise, so it may exceed the ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.stats import rankdata

from headscope.heads import Head
from headscope.tables import TableRow
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    from numpy.typing import NDArray

# One of three forms: [item, head], whose mean over items is the importance; a function that returns the importance
# [head] on a sample of items; or [head], which cannot be resampled.
Importance: TypeAlias = "NDArray[np.float64] | Callable[[NDArray[np.int64]], NDArray[np.float64]]"

REPLICATES = 200  # bootstrap resamples
LEAST_CEILING = 0.8  # below this, exact ablation is too noisy to rank heads
BOTTOM = 10  # least important heads that are compared between two rankings


def agreement(
    importances: Mapping[str, Importance],
    exact: NDArray[np.float64],
    *,
    seed: int = 0,
    bottom: int = BOTTOM,
) -> list[TableRow]:
    """One row per importance.

    exact  [item, head]: the change of loss by ablating each head

    Columns of the rows:

    correlation  Spearman's, over heads, with the exact change; low, high: interval over resamples of the items
    ceiling      noise ceiling of the exact ranking; NaN if the ranking is only noise
    overlap      number of heads that are among the `bottom` least important ones both by the importance and exactly
    by_chance    the overlap expected of a random ranking
    rank_spread  mean width of the 95 % intervals of ranks; NaN if the importance cannot be resampled
    """
    count = len(exact)
    draws = np.random.default_rng(seed).integers(0, count, size=(REPLICATES, count))
    truth = exact.mean(axis=0)
    ceiling = ceiling_of(exact, seed)
    least = set(np.argsort(truth, kind="stable")[:bottom].tolist())
    rows: list[TableRow] = []
    for name, values in importances.items():
        scores = of_items(values, np.arange(count))
        resampled = [of_items(values, draw) for draw in draws]
        correlations = [
            spearman(sample, exact[draw].mean(axis=0))
            for sample, draw in zip(resampled, draws, strict=True)
        ]
        low = high = np.nan
        if np.isfinite(correlations).any():
            low, high = np.nanquantile(correlations, [0.025, 0.975])
        low_rank, high_rank = _rank_interval(values, resampled)
        lowest = set(np.argsort(scores, kind="stable")[:bottom].tolist())
        rows.append(
            {
                "importance": name,
                "correlation": spearman(scores, truth),
                "low": float(low),
                "high": float(high),
                "ceiling": ceiling,
                "overlap": len(lowest & least),
                "bottom": min(bottom, len(truth)),
                "by_chance": min(bottom, len(truth)) ** 2 / len(truth),
                "rank_spread": float((high_rank - low_rank).mean()),
                "count": count,
            }
        )
    return rows


def of_items(values: Importance, items: NDArray[np.int64]) -> NDArray[np.float64]:
    """[head]: the importance on these items."""
    if callable(values):
        return values(items)
    return values if values.ndim == 1 else np.asarray(values[items].mean(axis=0))


def _rank_interval(
    values: Importance, resampled: list[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[head], [head]: 95 % interval of the ranks over resamples; NaN if the importance cannot be resampled."""
    if not callable(values) and values.ndim == 1:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    low, high = np.quantile([rankdata(sample) for sample in resampled], [0.025, 0.975], axis=0)
    return low, high


def ceilings(exact: NDArray[np.float64], heads: Sequence[Head], *, seed: int = 0) -> list[TableRow]:
    """Rows of ceilings.csv: the noise ceiling among the heads of each stack."""
    rows: list[TableRow] = []
    for stack in dict.fromkeys(head.stack for head in heads):
        columns = [i for i, head in enumerate(heads) if head.stack == stack]
        ceiling = ceiling_of(exact[:, columns], seed)
        size: TableRow = {"heads": len(columns), "count": len(exact)}
        rows.append({"stack": stack, "ceiling": ceiling} | size)
    return rows


def ceiling_of(exact: NDArray[np.float64], seed: int) -> float:
    """The square root of the reliability; NaN if the halves of the items do not correlate."""
    value = reliability(exact, seed)
    return float(np.sqrt(value)) if value > 0 else float("nan")


def examples_for(ceiling: float, count: int) -> int | None:
    """Number of examples that would raise the ceiling to LEAST_CEILING, if it was measured on `count` examples.

    None if the ceiling is high enough or unknown. Uses the formula of Spearman and Brown: if n examples have
    reliability r, k·n examples have reliability k·r / (1 + (k − 1)·r).
    """
    if not 0 < ceiling < LEAST_CEILING:
        return None
    current, target = ceiling**2, LEAST_CEILING**2
    return math.ceil(count * target * (1 - current) / (current * (1 - target)))


def reliability(exact: NDArray[np.float64], seed: int, splits: int = 20) -> float:
    """Mean split-half correlation of the exact changes over random splits, corrected to all items (Spearman-Brown)."""
    rng = np.random.default_rng(seed)
    correlations = []
    for _ in range(splits):
        halves = np.array_split(rng.permutation(len(exact)), 2)
        first, second = (exact[half].mean(axis=0) for half in halves)
        correlations.append(spearman(first, second))
    half = float(np.nanmean(correlations)) if np.isfinite(correlations).any() else 0.0
    return 2 * half / (1 + half) if half > -1 else 0.0


def rank_rows(
    importances: Mapping[str, Importance], heads: tuple[Head, ...], count: int, *, seed: int = 0
) -> list[TableRow]:
    """Rows of ranks.csv: rank of every head by every importance (1: least important), with 95 % intervals."""
    rows: list[TableRow] = []
    draws = np.random.default_rng(seed).integers(0, count, size=(REPLICATES, count))
    for name, values in importances.items():
        ranks = rankdata(of_items(values, np.arange(count)))
        low, high = _rank_interval(values, [of_items(values, draw) for draw in draws])
        rows += [
            {
                **asdict(head),
                "importance": name,
                "rank": float(ranks[i]),
                "low": float(low[i]),
                "high": float(high[i]),
            }
            for i, head in enumerate(heads)
        ]
    return rows
