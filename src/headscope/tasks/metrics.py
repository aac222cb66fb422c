"""Metrics of predictions: accuracy, F1, Matthews' and rank correlation. NaN where a sample leaves one undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUNDS = {  # what each metric can be at least and at most; one that is not named here can be anything
    **dict.fromkeys(("accuracy", "accuracy@1", "exact", "f1", "mrr"), (0.0, 1.0)),
    **dict.fromkeys(("matthews", "pearson", "spearman"), (-1.0, 1.0)),
    **dict.fromkeys(("bleu", "chrf"), (0.0, 100.0)),
    "perplexity": (1.0, np.inf),
}


def accuracy(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(np.mean(predicted == right))


def f1(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Of class 1 among two: undefined where it is neither predicted nor there, and where there are more classes."""
    if max(predicted.max(), right.max()) > 1:
        return float("nan")
    hits = float(np.sum((predicted == 1) & (right == 1)))
    named = float(np.sum(predicted == 1) + np.sum(right == 1))
    return 2 * hits / named if named else float("nan")


def matthews(predicted: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Correlation of two classes (or of several, in the same form); undefined where one side is constant."""
    classes = np.union1d(predicted, right)
    one, other = (np.equal.outer(side, classes).astype(float) for side in (predicted, right))
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    variance = float(np.sum(one * one) * np.sum(other * other))
    return float(np.sum(one * other) / np.sqrt(variance)) if variance > 0 else float("nan")


def pearson(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    one, other = one - one.mean(), other - other.mean()
    variance = float(np.sum(one * one) * np.sum(other * other))
    return float(np.sum(one * other) / np.sqrt(variance)) if variance > 0 else float("nan")


def spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return pearson(rankdata(one), rankdata(other))
