"""Do a model's heads change smoothly from layer to layer?

Song's poster finds that ALBERT's maps of confidence vary smoothly with depth and BERT's do not, and attributes this to
the shared parameters. The test is the correlation of neighbouring layers, in three forms:

heads   head h with head h of the next layer, averaged over the pairs of layers. Null: heads shuffled within layers.
        Only if layers share their parameters is "head h" the same in two layers; otherwise its number is arbitrary, and
        no correlation is expected.
sorted  the same with each layer's values sorted: independent of numbering, and high by construction. Null: shuffled
        layers.
means   the mean of each layer with that of the next. Null: shuffled layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from headscope.statistics.resampling import interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

Form = Literal["heads", "sorted", "means"]
FORMS: tuple[Form, ...] = ("heads", "sorted", "means")
SHUFFLES = 999
REPLICATES = 1000
LEAST = 3  # heads, or pairs of layers: a correlation of two values is ±1


@dataclass(frozen=True)
class Smoothness:
    """The correlation with its interval (resampling pairs of neighbouring layers), and the null from shuffles.

    probability  how often a shuffle is at least as smooth; the true order counts as one of the shuffles
    pairs        of neighbouring layers with a correlation: none if all heads of a layer are equal
    """

    value: float
    low: float
    high: float
    null: float
    null_low: float
    null_high: float
    probability: float
    pairs: int
    heads: int


def smoothness_of(grid: NDArray[np.float64], form: Form, seed: int = 0) -> Smoothness | None:
    """Smoothness of one statistic [layer, head] without heads with NaN; None for too few layers or heads."""
    grid = grid[:, np.isfinite(grid).all(axis=0)]
    layers, heads = grid.shape
    if heads < 1 or (layers <= LEAST if form == "means" else layers < 2 or heads < LEAST):
        return None
    measure = _of_heads
    if form == "sorted":
        grid = np.sort(grid, axis=1)
    elif form == "means":
        grid, measure = grid.mean(axis=1, keepdims=True), _of_means
    random = np.random.default_rng(seed)
    value, pairs, replicates = measure(grid[None], random)
    if not pairs:
        return None
    null = measure(_shuffle(grid, random, within_layers=form == "heads"), random)[0]
    low, high = interval(replicates) if pairs > 1 else (np.nan, np.nan)
    return Smoothness(
        value=float(value[0]),
        low=float(low),
        high=float(high),
        null=float(null.mean()),
        null_low=float(np.quantile(null, 0.025)),
        null_high=float(np.quantile(null, 0.975)),
        probability=(1 + int((null >= value[0] - 1e-12).sum())) / (1 + SHUFFLES),
        pairs=pairs,
        heads=heads,
    )


def _shuffle(
    grid: NDArray[np.float64], random: np.random.Generator, *, within_layers: bool
) -> NDArray[np.float64]:
    """[shuffle, layer, head]"""
    copies = np.repeat(grid[None], SHUFFLES, axis=0)
    if within_layers:
        return random.permuted(copies, axis=2)
    order = random.permuted(np.repeat(np.arange(len(grid))[None], SHUFFLES, axis=0), axis=1)
    return np.take_along_axis(copies, order[:, :, None], axis=1)


Correlations = tuple["NDArray[np.float64]", int, "NDArray[np.float64]"]


def _of_heads(grids: NDArray[np.float64], random: np.random.Generator) -> Correlations:
    """Mean correlation over heads of neighbouring layers for each grid, then pairs and replicates of the first grid.

    A pair with a layer of equal heads has no correlation and is left out; shuffled layers may have no pair at all.
    """
    each = _correlation(grids[:, :-1], grids[:, 1:])
    is_defined = np.isfinite(each)
    means = np.where(is_defined, each, 0.0).sum(axis=1) / np.maximum(is_defined.sum(axis=1), 1)
    first = each[0][is_defined[0]]
    indices = random.integers(max(len(first), 1), size=(REPLICATES, len(first)))
    return means, len(first), first[indices].mean(axis=1) if len(first) else first


def _of_means(grids: NDArray[np.float64], random: np.random.Generator) -> Correlations:
    """Correlation of the layers' means with the next ones for each grid, then pairs and replicates of the first."""
    means, following = grids[:, :-1, 0], grids[:, 1:, 0]
    values, count = _correlation(means, following), means.shape[1]
    is_defined = np.isfinite(values)
    indices = random.integers(count, size=(REPLICATES, count))
    replicates = _correlation(means[0][indices], following[0][indices])
    return np.where(is_defined, values, 0.0), count if is_defined[0] else 0, replicates


def _correlation(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation over the last axis; NaN if one side is constant up to rounding."""
    sides = []
    for side in (left, right):
        centred = side - side.mean(axis=-1, keepdims=True)
        length = np.sqrt(np.square(centred).sum(axis=-1, keepdims=True))
        has_spread = length > 1e-12 * np.abs(side).max(axis=-1, keepdims=True)
        nothing = np.full_like(centred, np.nan)
        sides.append(np.divide(centred, length, out=nothing, where=has_spread))
    return np.asarray((sides[0] * sides[1]).sum(axis=-1))
