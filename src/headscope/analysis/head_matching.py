"""Match the heads of two models by their behaviour.

A head is represented by the vector of its statistics, each divided by its standard deviation over the heads of both
models. The distance of two heads is the root mean square of the differences. Heads are paired by the optimal assignment
(smallest sum of distances).

Any assignment has some near pairs. As a control, it is repeated with each statistic shuffled separately over the heads
of the second model. This keeps the values of each statistic, but destroys their combinations in heads.
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
    """The heads of one stack.

    places  [head, 2]: layer and number of the head
    values  [head, statistic]: statistics in common units
    errors  [head, statistic]: their standard errors in the same units
    """

    places: NDArray[np.int64]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def depth(self) -> NDArray[np.float64]:
        """[head]: relative depth of its layer, 0 for the first layer and 1 for the last one."""
        layers = self.places[:, 0]
        return np.asarray(layers / max(int(layers.max()), 1))


@dataclass(frozen=True)
class Matching:
    """Matched heads, and the distances in the control with shuffled statistics.

    pairs      [pair, 2]: index of the head in the first and in the second model
    distances  [pair]: distance of the two heads
    noise      [pair]: distance expected if both were one head that was measured on different texts. It is computed
               from the intervals of the statistics
    null       [shuffle]: mean distance of the matched pairs of each shuffle
    chance     distances of the matched pairs of all shuffles, sorted
    """

    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]
    noise: NDArray[np.float64]
    null: NDArray[np.float64]
    chance: NDArray[np.float64]

    @property
    def probability(self) -> float:
        """Share of shuffles whose mean distance is at most the true one; the true order counts as one of them."""
        return float(1 + (self.null <= self.distances.mean() + 1e-12).sum()) / (1 + len(self.null))


def behaviours(left: pd.DataFrame, right: pd.DataFrame) -> tuple[Behaviour, Behaviour, list[str]]:
    """The heads of one stack of two models in common units, and the names of the statistics used.

    Statistics are used if every head of both models has a value. Statistics in offsets (argmax-offset) are left out:
    the difference of two offsets, e.g. of -20 and -1, does not measure how differently two heads behave.
    """
    definitions, index = glossary(), ["layer", "head"]
    tables = [
        frame.pivot(index=index, columns="statistic", values="value") for frame in (left, right)
    ]
    complete = set.intersection(*(set(table.columns[table.notna().all()]) for table in tables))
    names = [str(name) for name in dict.fromkeys(left["statistic"]) if name in complete]
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
        error = (frame["high"] - frame["low"]) / (2 * 1.96)
        errors = frame.assign(error=error).pivot(index=index, columns="statistic", values="error")
        values = table[names].to_numpy(dtype=float) - both.mean(axis=0)[is_used]
        standard_errors = errors.reindex(table.index)[names].to_numpy(dtype=float)
        places = np.array(table.index.tolist(), dtype=np.int64).reshape(-1, 2)
        scale = spread[is_used]
        sides.append(Behaviour(places, values / scale, standard_errors / scale))
    return sides[0], sides[1], names


def match(left: Behaviour, right: Behaviour, within: Within, seed: int = 0) -> Matching:
    """The optimal assignment. within: "stack" (any two heads may be paired) or "depth" (heads of similar depth)."""
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
    """[head, other head]: root mean square of the differences of their statistics."""
    return np.asarray(np.sqrt(np.square(left[:, None] - right[None]).mean(axis=-1)))


def _groups(
    left: Behaviour, right: Behaviour, within: Within
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Groups of heads that may be paired, as indices in both models.

    Within a stack there is one group. By depth, each layer of the deeper model joins the layer of the other model that
    is nearest in relative depth.
    """
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
    """[pair, 2]: the optimal assignment within each group, sorted."""
    from scipy.optimize import linear_sum_assignment

    pairs = []
    for rows, columns in groups:
        row, column = linear_sum_assignment(distances[np.ix_(rows, columns)])
        pairs.append(np.stack([rows[row], columns[column]], axis=1))
    every = np.concatenate(pairs)
    return every[np.lexsort((every[:, 1], every[:, 0]))]
