"""How good is each importance? How well the cheap ones rank heads as exact removal does, and how stable they are.

The exact ranking is itself noisy: two halves of the data disagree. `ceiling` is what even the true importances could
reach, the root of the reliability by splitting the examples in halves (Spearman and Brown). An importance of the same
examples shares their noise, and may lie above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from headscope.heads import Head
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPLICATES = 200
BOTTOM = 10


def agreement(
    importances: Mapping[str, NDArray[np.float64]], exact: NDArray[np.float64], *, seed: int = 0, bottom: int = BOTTOM
) -> list[dict[str, Any]]:
    """One row an importance. Each is [item, head], its mean over items being the importance; or [head], a constant.

    exact        [item, head]: the change of loss by removing each head
    correlation  Spearman's over heads with the exact change; low, high: over resamples of the items
    ceiling      what a perfect importance would reach, given how noisy the exact one is
    overlap      how many of the `bottom` least important heads are the same
    rank_spread  mean over heads of the width of the 95 % interval of its rank
    """
    count = len(exact)
    draws = np.random.default_rng(seed).integers(0, count, size=(REPLICATES, count))
    truth = exact.mean(axis=0)
    ceiling = float(np.sqrt(max(reliability(exact, seed), 0.0)))
    least = set(np.argsort(truth, kind="stable")[:bottom].tolist())
    rows = []
    for name, values in importances.items():
        mine = values if values.ndim == 1 else values.mean(axis=0)
        sampled, ranks = [], []
        for draw in draws:
            one = values if values.ndim == 1 else values[draw].mean(axis=0)
            sampled.append(spearman(one, exact[draw].mean(axis=0)))
            ranks.append(rankdata(one))
        low, high = np.nanquantile(sampled, [0.025, 0.975]) if np.isfinite(sampled).any() else (np.nan, np.nan)
        spread = np.quantile(ranks, 0.975, axis=0) - np.quantile(ranks, 0.025, axis=0)
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
                "by_chance": bottom * bottom / len(truth) if len(truth) > bottom else float(len(truth)),
                "rank_spread": float(spread.mean()),
                "count": count,
            }
        )
    return rows


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
    importances: Mapping[str, NDArray[np.float64]], heads: tuple[Head, ...], *, seed: int = 0
) -> list[dict[str, Any]]:
    """Every head's rank by every importance (1: least important) with its 95 % interval over resamples."""
    rows = []
    for name, values in importances.items():
        mine = rankdata(values if values.ndim == 1 else values.mean(axis=0))
        if values.ndim == 1:
            low = high = mine
        else:
            draws = np.random.default_rng(seed).integers(0, len(values), size=(REPLICATES, len(values)))
            ranks = np.stack([rankdata(values[draw].mean(axis=0)) for draw in draws])
            low, high = np.quantile(ranks, [0.025, 0.975], axis=0)
        rows += [
            {
                "stack": head.stack,
                "layer": head.layer,
                "head": head.head,
                "importance": name,
                "rank": float(mine[i]),
                "low": float(low[i]),
                "high": float(high[i]),
            }
            for i, head in enumerate(heads)
        ]
    return rows
