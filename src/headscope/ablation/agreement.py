"""How good is each importance? How well the cheap ones rank heads as exact removal does, and how stable they are.

The exact ranking is itself noisy: two halves of the data disagree. `ceiling` is what even the true importances could
reach, the root of the reliability by splitting the examples in halves (Spearman and Brown). An importance of the same
examples shares their noise, and may lie above it.
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

# [item, head], whose mean over items it is; or how it follows from a sample of items; or [head], known of all alone
Importance: TypeAlias = "NDArray[np.float64] | Callable[[NDArray[np.int64]], NDArray[np.float64]]"

REPLICATES = 200
LEAST_CEILING = 0.8  # below, exact removal on so many examples is too noisy to rank heads by
BOTTOM = 10


def agreement(
    importances: Mapping[str, Importance],
    exact: NDArray[np.float64],
    *,
    seed: int = 0,
    bottom: int = BOTTOM,
) -> list[TableRow]:
    """One row an importance.

    exact        [item, head]: the change of loss by removing each head
    correlation  Spearman's over heads with the exact change; low, high: over resamples of the items
    ceiling      what a perfect importance would reach, given how noisy the exact one is; NaN: all noise
    overlap      how many of the `bottom` least important heads are the same
    rank_spread  mean over heads of the width of the 95 % interval of its rank; NaN where it cannot be resampled
    """
    count = len(exact)
    draws = np.random.default_rng(seed).integers(0, count, size=(REPLICATES, count))
    truth = exact.mean(axis=0)
    ceiling = ceiling_of(exact, seed)
    least = set(np.argsort(truth, kind="stable")[:bottom].tolist())
    rows: list[TableRow] = []
    for name, values in importances.items():
        mine = of_items(values, np.arange(count))
        sampled, ranks = [], []
        for draw in draws:
            one = of_items(values, draw)
            sampled.append(spearman(one, exact[draw].mean(axis=0)))
            ranks.append(rankdata(one))
        low = high = np.nan
        if np.isfinite(sampled).any():
            low, high = np.nanquantile(sampled, [0.025, 0.975])
        low_rank, high_rank = _interval(values, ranks)
        chosen = set(np.argsort(mine, kind="stable")[:bottom].tolist())
        rows.append(
            {
                "importance": name,
                "correlation": spearman(mine, truth),
                "low": float(low),
                "high": float(high),
                "ceiling": ceiling,
                "overlap": len(chosen & least),
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
    found: NDArray[np.float64] = values if values.ndim == 1 else values[items].mean(axis=0)
    return found


def _interval(
    values: Importance, ranks: list[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[head], [head]: the ends of 95 % of the ranks over resamples; NaN for what cannot be resampled."""
    if not callable(values) and values.ndim == 1:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    low, high = np.quantile(ranks, [0.025, 0.975], axis=0)
    return low, high


def ceilings(exact: NDArray[np.float64], heads: Sequence[Head], *, seed: int = 0) -> list[TableRow]:
    """Rows of ceilings.csv: what the true importances would reach among the heads of each stack by themselves."""
    rows: list[TableRow] = []
    for stack in dict.fromkeys(head.stack for head in heads):
        mine = [i for i, head in enumerate(heads) if head.stack == stack]
        told = {"stack": stack, "ceiling": ceiling_of(exact[:, mine], seed)}
        rows.append(told | {"heads": len(mine), "count": len(exact)})
    return rows


def ceiling_of(exact: NDArray[np.float64], seed: int) -> float:
    """The root of the reliability; NaN where one half of the items says nothing about the other."""
    found = reliability(exact, seed)
    return float(np.sqrt(found)) if found > 0 else float("nan")


def examples_for(ceiling: float, count: int) -> int | None:
    """How many examples would raise a ceiling, found on `count` of them, to LEAST_CEILING; None if that is unknown.

    By Spearman and Brown: the reliability r of n examples is k·r / (1 + (k − 1)·r) with k times as many.
    """
    if not 0 < ceiling < LEAST_CEILING:
        return None
    known, wanted = ceiling**2, LEAST_CEILING**2
    return math.ceil(count * wanted * (1 - known) / (known * (1 - wanted)))


def reliability(exact: NDArray[np.float64], seed: int, splits: int = 20) -> float:
    """The correlation of the exact changes on one half of the items with those on the other, for the whole length."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(splits):
        order = chance.permutation(len(exact))
        one, other = (exact[half].mean(axis=0) for half in np.array_split(order, 2))
        found.append(spearman(one, other))
    half = float(np.nanmean(found)) if np.isfinite(found).any() else 0.0
    return 2 * half / (1 + half) if half > -1 else 0.0


def rank_rows(
    importances: Mapping[str, Importance], heads: tuple[Head, ...], count: int, *, seed: int = 0
) -> list[TableRow]:
    """Every head's rank by every importance (1: least important) with its 95 % interval over resamples of the items."""
    rows: list[TableRow] = []
    draws = np.random.default_rng(seed).integers(0, count, size=(REPLICATES, count))
    for name, values in importances.items():
        mine = rankdata(of_items(values, np.arange(count)))
        low, high = _interval(values, [rankdata(of_items(values, draw)) for draw in draws])
        rows += [
            {
                **asdict(head),
                "importance": name,
                "rank": float(mine[i]),
                "low": float(low[i]),
                "high": float(high[i]),
            }
            for i, head in enumerate(heads)
        ]
    return rows
