"""What would a head's map look like, if it did one known thing? Made-up maps of the five patterns, with their labels.

A map is a mixture of a vertical, a diagonal, a block and a shapeless part; its label follows from the shares that were
mixed, never from measuring the result. Between the labels there are gaps, so that few maps are a matter of taste:

    vertical           vertical part 0.25 or more, diagonal at most 0.03
    diagonal           diagonal part 0.4 or more, vertical at most 0.05
    vertical-diagonal  vertical part 0.2 or more, diagonal 0.2 or more
    block              of what is not vertical (at most 0.1) or diagonal (at most 0.1), 0.8 or more stays in its segment
    heterogeneous      vertical at most 0.05, diagonal at most 0.03, the rest without shape

Vertical are columns over all rows, of special tokens or of a few words; columns over some of the rows are without
shape. Lengths, widths, noise, where the special tokens stand and whether the map is causal are drawn by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.statistics.pattern_classifier import PATTERNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Map = NDArray[np.float64]

LENGTHS = (16, 128)
CAUSAL_SHARE = 0.15


@dataclass(frozen=True)
class PlantedMap:
    """weights [query, key], rows sum to 1; special and segments [token]; label: one of PATTERNS."""

    weights: Map
    special: NDArray[np.bool_]
    segments: NDArray[np.int64]
    label: str
    is_causal: bool


def planted_maps(count: int, seed: int) -> Iterator[PlantedMap]:
    """So many maps, the patterns in turn."""
    chance = np.random.Generator(np.random.Philox(key=seed))
    for i in range(count):
        yield planted_map(PATTERNS[i % len(PATTERNS)], chance)


def planted_map(label: str, chance: np.random.Generator) -> PlantedMap:
    length = int(chance.integers(LENGTHS[0], LENGTHS[1] + 1))
    special, segments = _tokens(length, chance, is_pair=label == "block" or chance.random() < 0.6)
    is_causal = bool(chance.random() < CAUSAL_SHARE)
    vertical, diagonal, block = _shares(label, chance)
    looked_at = np.flatnonzero(special)
    if not is_causal and chance.random() < 0.3:
        looked_at = chance.choice(length, size=int(chance.integers(1, 7)), replace=False)
    parts = [
        (vertical, _columns(length, looked_at, chance)),
        (diagonal, _near(length, special, chance, is_causal)),
        (block, _within(length, special, segments, chance)),
        (1.0 - vertical - diagonal - block, _shapeless(length, special, chance)),
    ]
    unevenness = chance.uniform(0.05, 0.5)  # how much the shares differ from row to row
    weights = np.zeros((length, length))
    for share, part in parts:
        seen = np.tril(part) if is_causal else part
        weights += share * chance.lognormal(0.0, unevenness, (length, 1)) * _rows_to_1(seen)
    return PlantedMap(_rows_to_1(weights), special, segments, label, is_causal)


def _shares(label: str, chance: np.random.Generator) -> tuple[float, float, float]:
    """How much of the map is vertical, diagonal, block."""
    faint, little = chance.uniform(0.0, 0.05), chance.uniform(0.0, 0.03)
    if label == "vertical":
        much = chance.uniform(0.25, 1.0)
        return much, min(little, 1 - much), 0.0
    if label == "diagonal":
        much = chance.uniform(0.4, 1.0)
        return min(faint, 1 - much), much, 0.0
    if label == "vertical-diagonal":
        vertical = chance.uniform(0.2, 0.75)
        return vertical, chance.uniform(0.2, 1 - vertical), 0.0
    if label == "block":
        vertical, diagonal = chance.uniform(0.0, 0.1), chance.uniform(0.0, 0.1)
        return vertical, diagonal, (1 - vertical - diagonal) * chance.uniform(0.8, 1.0)
    return faint, little, 0.0


def _tokens(
    length: int, chance: np.random.Generator, *, is_pair: bool
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Special tokens: usually one before, one after, and one between the texts of a pair."""
    special = np.zeros(length, dtype=bool)
    special[0] = chance.random() < 0.85
    special[-1] = True
    segments = np.zeros(length, dtype=np.int64)
    if is_pair:
        middle = int(length * chance.uniform(0.25, 0.75))
        special[middle] = True
        segments[middle + 1 :] = 1
    return special, segments


def _columns(length: int, chosen: NDArray[np.int64], chance: np.random.Generator) -> Map:
    """Every row looks at the same few columns, more or less."""
    shares = chance.dirichlet(np.full(len(chosen), 0.7))
    weights = np.full((length, length), 1e-6)
    weights[:, chosen] += shares * chance.gamma(8.0, size=(length, len(chosen)))
    return weights


def _near(
    length: int, special: NDArray[np.bool_], chance: np.random.Generator, is_causal: bool
) -> Map:
    """Every row looks at a token near it; sharp, or blurred over a few."""
    furthest = 1 if chance.random() < 0.6 else max(min(length // 12, 6), 1)
    centre = int(chance.integers(-furthest, 1 if is_causal else furthest + 1))
    two_sided = chance.random() < 0.2
    width = (
        chance.uniform(0.1, 0.8)
        if chance.random() < 0.6
        else chance.uniform(0.8, max(length / 40, 1.0))
    )
    distance = _distance(length)
    weights = np.exp(-(((distance - centre) / width) ** 2) / 2)
    if two_sided:
        weights += np.exp(-(((distance + centre) / width) ** 2) / 2)
    rows = np.where(special[:, None], 1.0, weights)  # what is special has nothing to do there
    return rows * np.where(special, 0.01, 1.0) + 1e-6


def _within(
    length: int,
    special: NDArray[np.bool_],
    segments: NDArray[np.int64],
    chance: np.random.Generator,
) -> Map:
    """Every row looks at its own segment, somehow."""
    same = (segments[:, None] == segments) & ~special
    texture = chance.choice(["even", "noise", "columns", "decay"])
    return np.where(same, _texture(texture, length, special, chance), 0.0) + 1e-6


def _shapeless(length: int, special: NDArray[np.bool_], chance: np.random.Generator) -> Map:
    kind = chance.choice(["even", "noise", "noise", "stretches", "decay", "likeness", "far"])
    return _texture(kind, length, special, chance)


def _texture(
    kind: str, length: int, special: NDArray[np.bool_], chance: np.random.Generator
) -> Map:
    content = np.flatnonzero(~special)
    noise = chance.normal(size=(length, length))
    if kind == "columns":  # the same few words for all, a full stop perhaps
        few = chance.choice(
            content, size=min(int(chance.integers(2, 8)), len(content)), replace=False
        )
        return _columns(length, few, chance) + chance.uniform(0.0, 2.0) / length
    if kind == "stretches":  # stretches of rows, each with columns of its own
        cuts = np.sort(chance.integers(1, length, size=int(chance.integers(2, 6))))
        weights = np.full((length, length), 1e-3)
        for rows in np.split(np.arange(length), cuts):
            few = chance.choice(
                length, size=int(chance.integers(1, max(length // 5, 2))), replace=False
            )
            weights[np.ix_(rows, few)] += chance.gamma(4.0, size=(len(rows), len(few)))
        return weights
    if kind == "decay":  # the nearer the better, but far wider than a neighbour
        return np.exp(
            -np.abs(_distance(length)) / chance.uniform(length / 6, length / 2) + 0.3 * noise
        )
    if kind == "likeness":  # words of one kind look at each other
        kinds = chance.integers(0, int(chance.integers(3, 9)), size=length)
        alike = (kinds[:, None] == kinds) & ~np.eye(length, dtype=bool)
        liked: Map = np.exp(chance.uniform(1.0, 4.0) * alike + 0.5 * noise)
        return liked
    if kind == "far":  # a diagonal that is not next to the token
        offset = int(chance.integers(4, max(length // 2, 5))) * int(chance.choice([-1, 1]))
        return (
            np.exp(-(((_distance(length) - offset) / chance.uniform(0.5, 3.0)) ** 2) / 2)
            + 0.5 / length
        )
    return np.exp((chance.uniform(0.7, 3.0) if kind == "noise" else 0.05) * noise)


def _distance(length: int) -> Map:
    places = np.arange(length, dtype=np.float64)
    return places - places[:, None]


def _rows_to_1(weights: Map) -> Map:
    totals: Map = weights.sum(axis=1, keepdims=True)
    return weights / totals
