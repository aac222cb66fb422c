"""Do a model's heads change smoothly from layer to layer?

Song's poster finds that ALBERT's maps of confidence vary smoothly with depth and BERT's do not, and lays it to the
shared parameters. Tested here by the correlation of neighbouring layers, in three forms:

heads   head h against head h of the next layer, averaged over the pairs of layers. Against heads shuffled within their
        layers. Only where layers share their parameters is "head h" the same thing in two layers; elsewhere its number
        is arbitrary and nothing but chance is to be expected.
sorted  the same with each layer's values in order of size: alike whatever the numbering, and high by construction, so
        it is read against shuffled layers.
means   the layers' means, each against the next one's. Against shuffled layers.
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
LEAST = 3  # heads, or pairs of layers, below which a correlation is ±1 or nothing


@dataclass(frozen=True)
class Smoothness:
    """value [low, high]: resampling the pairs of neighbouring layers; the null's middle 95 % from shuffles.

    probability  how often a shuffle is at least as smooth; the true order counts as one of the shuffles
    pairs        of neighbouring layers that have a correlation: none where all heads of a layer are equal
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
    """Of one statistic [layer, head]; None where there are too few layers or heads. Heads with a gap are left out."""
    grid = grid[:, np.isfinite(grid).all(axis=0)]
    layers, heads = grid.shape
    if heads < 1 or (layers <= LEAST if form == "means" else layers < 2 or heads < LEAST):
        return None
    known = (
        np.sort(grid, axis=1)
        if form == "sorted"
        else grid.mean(axis=1, keepdims=True)
        if form == "means"
        else grid
    )
    random = np.random.default_rng(seed)
    measure = _of_means if form == "means" else _of_heads
    value, pairs, replicates = measure(known[None], random)
    if not pairs:
        return None
    null = measure(_shuffled(known, random, within_layers=form == "heads"), random)[0]
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


def _shuffled(
    grid: NDArray[np.float64], random: np.random.Generator, *, within_layers: bool
) -> NDArray[np.float64]:
    """[shuffle, layer, head]"""
    copies = np.repeat(grid[None], SHUFFLES, axis=0)
    if within_layers:
        return random.permuted(copies, axis=2)
    order = random.permuted(np.repeat(np.arange(len(grid))[None], SHUFFLES, axis=0), axis=1)
    return np.take_along_axis(copies, order[:, :, None], axis=1)


Measured = tuple["NDArray[np.float64]", int, "NDArray[np.float64]"]


def _of_heads(grids: NDArray[np.float64], random: np.random.Generator) -> Measured:
    """Of each grid: the mean correlation over heads of neighbouring layers. Pairs and replicates are the first's.

    A pair with a layer of equal heads has no correlation and is left out; shuffled layers may have no pair at all.
    """
    each = _correlation(grids[:, :-1], grids[:, 1:])
    is_known = np.isfinite(each)
    means = np.where(is_known, each, 0.0).sum(axis=1) / np.maximum(is_known.sum(axis=1), 1)
    first = each[0][is_known[0]]
    drawn = random.integers(max(len(first), 1), size=(REPLICATES, len(first)))
    return means, len(first), first[drawn].mean(axis=1) if len(first) else first


def _of_means(grids: NDArray[np.float64], random: np.random.Generator) -> Measured:
    """Of each grid: the correlation, over pairs of neighbouring layers, of one number a layer."""
    here, after = grids[:, :-1, 0], grids[:, 1:, 0]
    values = _correlation(here, after)
    is_known = np.isfinite(values)
    drawn = random.integers(here.shape[1], size=(REPLICATES, here.shape[1]))
    pairs = here.shape[1] if is_known[0] else 0
    return np.where(is_known, values, 0.0), pairs, _correlation(here[0][drawn], after[0][drawn])


def _correlation(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's, over the last axis; NaN where one side is constant (but for rounding)."""
    sides = []
    for side in (left, right):
        centred = side - side.mean(axis=-1, keepdims=True)
        length = np.sqrt(np.square(centred).sum(axis=-1, keepdims=True))
        has_spread = length > 1e-12 * np.abs(side).max(axis=-1, keepdims=True)
        sides.append(
            np.divide(centred, length, out=np.full_like(centred, np.nan), where=has_spread)
        )
    return np.asarray((sides[0] * sides[1]).sum(axis=-1))
