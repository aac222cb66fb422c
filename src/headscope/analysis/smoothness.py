"""Smoothness: do statistics of heads change gradually from layer to layer?

Song's poster reports that the confidence of ALBERT's heads varies smoothly with depth, while BERT's does not, and
attributes this to ALBERT's shared parameters. Smoothness is measured as the correlation of neighbouring layers, in
three forms:

heads   head h with head h of the next layer; mean over the pairs of layers. Null: heads shuffled within layers.
        The number of a head means something only if layers share their parameters. Otherwise it is arbitrary, and no
        correlation is expected.
sorted  the same after sorting the values of each layer. It does not depend on the numbers of heads, and is high by
        construction. Null: shuffled layers.
means   the mean of each layer with that of the next one. Null: shuffled layers.
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
# minimum number of heads, or of pairs of layers: a correlation of two values is always ±1
LEAST = 3


@dataclass(frozen=True)
class Smoothness:
    """The correlation of neighbouring layers.

    low, high            its interval, from resampling pairs of neighbouring layers
    null                 mean correlation after shuffling; null_low, null_high: its 95 % range
    probability          share of shuffles that are at least as smooth; the true order counts as one of them
    pairs                number of pairs of neighbouring layers that have a correlation
    heads                number of heads per layer
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
    """Smoothness of one statistic; None if there are too few layers or heads.

    grid  [layer, head]; heads (columns) with a NaN in any layer are left out
    """
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
    """[shuffle, layer, head]: the grid with heads shuffled within layers, or with layers shuffled."""
    copies = np.repeat(grid[None], SHUFFLES, axis=0)
    if within_layers:
        return random.permuted(copies, axis=2)
    order = random.permuted(np.repeat(np.arange(len(grid))[None], SHUFFLES, axis=0), axis=1)
    return np.take_along_axis(copies, order[:, :, None], axis=1)


# The smoothness of each grid; the number of pairs of layers, and the bootstrap replicates, of the first grid
Correlations = tuple["NDArray[np.float64]", int, "NDArray[np.float64]"]


def _of_heads(grids: NDArray[np.float64], random: np.random.Generator) -> Correlations:
    """Smoothness of grids [grid, layer, head] in the forms `heads` and `sorted`: mean over pairs of layers.

    A pair is left out if the heads of one of its layers are all equal, since it has no correlation. If no pair is left,
    the smoothness is 0.
    """
    each = _correlation(grids[:, :-1], grids[:, 1:])
    is_defined = np.isfinite(each)
    means = np.where(is_defined, each, 0.0).sum(axis=1) / np.maximum(is_defined.sum(axis=1), 1)
    first = each[0][is_defined[0]]
    indices = random.integers(max(len(first), 1), size=(REPLICATES, len(first)))
    return means, len(first), first[indices].mean(axis=1) if len(first) else first


def _of_means(grids: NDArray[np.float64], random: np.random.Generator) -> Correlations:
    """Smoothness of grids [grid, layer, 1] in the form `means`: correlation of means with those of the next layers."""
    means, following = grids[:, :-1, 0], grids[:, 1:, 0]
    values, count = _correlation(means, following), means.shape[1]
    is_defined = np.isfinite(values)
    indices = random.integers(count, size=(REPLICATES, count))
    replicates = _correlation(means[0][indices], following[0][indices])
    return np.where(is_defined, values, 0.0), count if is_defined[0] else 0, replicates


def _correlation(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation over the last axis; NaN if one of the two is constant up to rounding."""
    sides = []
    for side in (left, right):
        centred = side - side.mean(axis=-1, keepdims=True)
        length = np.sqrt(np.square(centred).sum(axis=-1, keepdims=True))
        has_spread = length > 1e-12 * np.abs(side).max(axis=-1, keepdims=True)
        nothing = np.full_like(centred, np.nan)
        sides.append(np.divide(centred, length, out=nothing, where=has_spread))
    return np.asarray((sides[0] * sides[1]).sum(axis=-1))
