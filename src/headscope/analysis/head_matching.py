"""Match the heads of two models by their behaviour.

A head is the vector of its statistics, each in units of its standard deviation over the heads of both models; the
distance of two heads is the root mean square of the differences. Heads are paired by the optimal assignment (least sum
of distances). An assignment always finds some near pairs. As a control it is repeated with each statistic shuffled over
the heads of the second model, which keeps every value and destroys the combination of values in a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.statistics import glossary
from headscope.study.schema.names import StatisticName

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Within = Literal["stack", "depth"]
WITHIN: tuple[Within, ...] = ("stack", "depth")
SHUFFLES = 199


@dataclass(frozen=True)
class Behaviour:
    """The heads of one stack: layer and head number [head, 2], statistics and their errors [head, statistic]."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def depth(self) -> NDArray[np.float64]:
        """0 at the first layer, 1 at the last."""
        layers = self.places[:, 0]
        return np.asarray(layers / max(int(layers.max()), 1))


@dataclass(frozen=True)
class Matching:
    """Pairs (index in the first, index in the second) with their distances, and those of shuffled heads.

    noise    distance of two measurements of one head on different texts, from the intervals
    null     mean distance of the pairs in each shuffle; chance: all their distances, sorted
    """

    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]
    noise: NDArray[np.float64]
    null: NDArray[np.float64]
    chance: NDArray[np.float64]

    @property
    def probability(self) -> float:
        """How often shuffled heads match as closely; the true ones count as one of the shuffles."""
        return float(1 + (self.null <= self.distances.mean() + 1e-12).sum()) / (1 + len(self.null))


def behaviours(left: pd.DataFrame, right: pd.DataFrame) -> tuple[Behaviour, Behaviour, list[str]]:
    """Two tables of heads of one stack in common units, and the statistics used: those that every head of both has.

    argmax-offset is left out: it is a mode, and an offset of -20 is not 20 times one of -1.
    """
    definitions, index = glossary(), ["layer", "head"]
    tables = [
        frame.pivot(index=index, columns="statistic", values="value") for frame in (left, right)
    ]
    whole = [set(table.columns[table.notna().all()]) for table in tables]
    names = [str(name) for name in dict.fromkeys(left["statistic"]) if name in whole[0] & whole[1]]
    names = [
        name
        for name in names
        if not StatisticName.parse(name).lens  # heads are matched by raw attention
        and (name not in definitions or definitions[name].unit != "offset")
    ]
    both = np.concatenate([table[names].to_numpy(dtype=float) for table in tables])
    spread = both.std(axis=0)
    is_used = spread > 1e-12
    names = [name for name, used in zip(names, is_used, strict=True) if used]
    sides = []
    for frame, table in zip((left, right), tables, strict=True):
        half = (frame["high"] - frame["low"]) / (2 * 1.96)
        errors = frame.assign(half=half).pivot(index=index, columns="statistic", values="half")
        values = table[names].to_numpy(dtype=float) - both.mean(axis=0)[is_used]
        of_table = errors.reindex(table.index)[names].to_numpy(dtype=float)
        places = np.array(table.index.tolist(), dtype=np.int64).reshape(-1, 2)
        sides.append(Behaviour(places, values / spread[is_used], of_table / spread[is_used]))
    return sides[0], sides[1], names


def match(left: Behaviour, right: Behaviour, within: Within, seed: int = 0) -> Matching:
    """The best pairs: over the whole stack, or among heads of the same relative depth."""
    random = np.random.default_rng(seed)
    groups = list(_groups(left, right, within))
    distances = distances_of(left.values, right.values)
    pairs = _assign(distances, groups)
    distances = distances[pairs[:, 0], pairs[:, 1]]
    chance = []
    for _ in range(SHUFFLES):
        shuffled = distances_of(left.values, random.permuted(right.values, axis=0))
        of_shuffled = _assign(shuffled, groups)
        chance.append(shuffled[of_shuffled[:, 0], of_shuffled[:, 1]])
    squares = np.square(left.errors[pairs[:, 0]]) + np.square(right.errors[pairs[:, 1]])
    is_known = np.isfinite(squares)
    with np.errstate(invalid="ignore"):
        noise = np.sqrt(np.where(is_known, squares, 0.0).sum(axis=1) / is_known.sum(axis=1))
    null = np.array([of_shuffled.mean() for of_shuffled in chance])
    return Matching(pairs, distances, noise, null, np.sort(np.concatenate(chance)))


def distances_of(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """[head, other head]: root mean square difference."""
    return np.asarray(np.sqrt(np.square(left[:, None] - right[None]).mean(axis=-1)))


def _groups(
    left: Behaviour, right: Behaviour, within: Within
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Groups of heads that may be paired: all, or each layer of the deeper model with the nearest in depth."""
    if within == "stack":
        yield np.arange(len(left.values)), np.arange(len(right.values))
        return
    is_swapped = left.places[:, 0].max() > right.places[:, 0].max()
    shallow, deep = (right, left) if is_swapped else (left, right)
    layers = np.unique(shallow.places[:, 0])
    depths = layers / max(int(layers.max()), 1)
    nearest = layers[np.abs(deep.depth[:, None] - depths).argmin(axis=1)]
    for layer in layers:
        own, others = (
            np.flatnonzero(shallow.places[:, 0] == layer),
            np.flatnonzero(nearest == layer),
        )
        if len(others):
            yield (others, own) if is_swapped else (own, others)


def _assign(
    distances: NDArray[np.float64], groups: list[tuple[NDArray[Any], NDArray[Any]]]
) -> NDArray[np.int64]:
    from scipy.optimize import linear_sum_assignment

    pairs = []
    for rows, columns in groups:
        row, column = linear_sum_assignment(distances[np.ix_(rows, columns)])
        pairs.append(np.stack([rows[row], columns[column]], axis=1))
    every = np.concatenate(pairs)
    return every[np.lexsort((every[:, 1], every[:, 0]))]
