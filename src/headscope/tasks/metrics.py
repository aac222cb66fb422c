"""Metrics of predictions: accuracy, F1, and correlations of Matthews, Pearson and Spearman; NaN if undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUNDS = {  # smallest and largest value of metrics; others are unbounded
    **dict.fromkeys(("accuracy", "accuracy@1", "exact", "f1", "mrr"), (0.0, 1.0)),
    **dict.fromkeys(("matthews", "pearson", "spearman"), (-1.0, 1.0)),
    **dict.fromkeys(("bleu", "chrf"), (0.0, 100.0)),
    "perplexity": (1.0, np.inf),
}


def accuracy(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(np.mean(predicted == right))


def f1(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """F1 of class 1 of two; undefined if it neither occurs nor is predicted, and for more classes."""
    if max(predicted.max(), right.max()) > 1:
        return float("nan")
    hits = float(np.sum((predicted == 1) & (right == 1)))
    total = float(np.sum(predicted == 1) + np.sum(right == 1))
    return 2 * hits / total if total else float("nan")


def matthews(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Correlation of two classes, or of several in the same form; undefined if either is constant."""
    classes = np.union1d(predicted, right)
    indicators = (np.equal.outer(labels, classes).astype(float) for labels in (predicted, right))
    return pearson(*indicators)


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Correlation of [item] or [item, class]; undefined if either is constant."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    variance = float(np.sum(x * x) * np.sum(y * y))
    return float(np.sum(x * y) / np.sqrt(variance)) if variance > 0 else float("nan")


def spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return pearson(rankdata(x), rankdata(y))
