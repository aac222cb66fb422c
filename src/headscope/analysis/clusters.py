"""Clusters of heads, the nearest head of each head, and whether heads of the same layer are similar.

The input is the matrix of mean Jensen-Shannon divergences (JS) between heads. The square root of JS is a distance in a
Euclidean space; JS itself, which Clark's code uses, is not. So classical scaling finds the two main axes exactly and
deterministically. Metric scaling (SMACOF) starts from there and brings the distances in the plane nearer to the true
ones. Clusters are computed by average linkage of the same distances; their number (2 to 12) is that with the best
silhouette.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.study.schema.record import Section
from headscope.tables import TableRow

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

MOST_CLUSTERS = 12
SHUFFLES = 1999  # with the true order, the smallest probability is 1 / 2000
SMALLEST_DISTANCE = 1e-6  # a smaller distance between heads is a rounding error


@dataclass(frozen=True)
class Clusters:
    """Results from the distances between the heads of one stack.

    points              [head, 2]: coordinates in the plane by metric scaling, in √nats
    cluster             [head]: number of the cluster, from 0 for the largest
    nearest             [head]: index of the nearest other head; -1 if there is none
    nearest_divergence  [head]: JS between the head and its nearest head, in nats
    explained           share of the squared distances that the two axes of classical scaling explain
    stress              √(Σ (distance in the plane − true distance)² / Σ true²) of `points`
    classical_stress    the same for the plane of classical scaling
    silhouette          silhouette of the clusters, −1 to 1; NaN if there is only one cluster
    within, between     mean JS between heads of one layer, and between heads of different layers; NaN if there are none
    probability         share of shuffles of the layers whose ratio within / between is at most the true one; NaN if
                        there is no ratio
    """

    heads: tuple[Head, ...]
    points: NDArray[np.float64]
    cluster: NDArray[np.int64]
    nearest: NDArray[np.int64]
    nearest_divergence: NDArray[np.float64]
    explained: float
    classical_stress: float
    stress: float
    silhouette: float
    within: float
    between: float
    probability: float

    @property
    def ratio(self) -> float:
        return self.within / self.between if self.between > 0 else math.nan

    def rows(self) -> list[TableRow]:
        """Rows of clusters.csv, one per head. The columns of the nearest head are None if there is none."""
        nearest = [self.heads[i] if i >= 0 else None for i in self.nearest]
        return [
            {
                **asdict(head),
                "x": float(x),
                "y": float(y),
                "cluster": int(cluster),
                "twin_layer": None if other is None else other.layer,
                "twin_head": None if other is None else other.head,
                "twin_distance": None if other is None else float(divergence),
            }
            for head, (x, y), cluster, other, divergence in zip(
                self.heads, self.points, self.cluster, nearest, self.nearest_divergence, strict=True
            )
        ]

    def summary(self) -> Section:
        """The numbers for the stack as a whole, for run.json; None if undefined."""
        names = ("silhouette", "explained", "stress", "classical_stress")
        numbers: dict[str, float] = {"clusters": int(self.cluster.max()) + 1}
        numbers |= {name: getattr(self, name) for name in names}
        numbers |= {"within_layers": self.within, "between_layers": self.between}
        numbers |= {"ratio": self.ratio, "probability": self.probability}
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def clusters_in(
    heads: pd.DataFrame, maps: Mapping[str, NDArray[Any]], kind: str = "js"
) -> dict[str, Clusters]:
    """The clusters of each stack of a study, from its `heads` and `maps`.

    Stacks in which some heads could not be compared are left out.

    kind  the maps to use: "js", or "js-content" (only content tokens)
    """
    clusters = {}
    for name, matrix in sorted(maps.items()):
        prefix, _, stack = name.partition("/")
        if prefix != kind or not np.isfinite(matrix).all():
            continue
        rows = heads.loc[heads["stack"] == stack, ["layer", "head"]].drop_duplicates()
        pairs = sorted(rows.itertuples(index=False, name=None))
        addresses = [Head(stack, int(layer), int(head)) for layer, head in pairs]
        if len(addresses) == len(matrix):
            clusters[stack] = clusters_of(matrix, addresses)
    return clusters


def clusters_of(js: NDArray[np.float64], heads: Sequence[Head], *, seed: int = 0) -> Clusters:
    """Clusters of the heads of one stack.

    js    [head, head]: mean JS divergence in nats
    seed  random seed for shuffling the layers
    """
    js = _symmetric(np.asarray(js, dtype=np.float64), len(heads))
    distance = np.sqrt(js)
    classical, explained = classical_plane(js)
    points = _metric_plane(distance, classical)
    cluster, silhouette = _groups(distance)
    nearest, divergence = _nearest_heads(js)
    within, between, probability = layer_effect(js, [head.layer for head in heads], seed)
    return Clusters(
        heads=tuple(heads),
        points=points,
        cluster=cluster,
        nearest=nearest,
        nearest_divergence=divergence,
        explained=explained,
        classical_stress=_stress(classical, distance),
        stress=_stress(points, distance),
        silhouette=silhouette,
        within=within,
        between=between,
        probability=probability,
    )


def _symmetric(js: NDArray[np.float64], heads: int) -> NDArray[np.float64]:
    """The matrix, made exactly symmetric; raises an error if it cannot be a matrix of divergences."""
    if heads == 0 or js.shape != (heads, heads):
        what = f"a matrix of {' x '.join(map(str, js.shape))} for {heads} heads"
        raise HeadscopeError(what, expected="a row per head")
    is_valid = np.isfinite(js).all() and (js >= 0).all() and not np.diag(js).any()
    if not (is_valid and np.allclose(js, js.T, atol=1e-9)):
        raise HeadscopeError(
            "these are not divergences between heads",
            expected="finite numbers of 0 or more, the same on both sides of a diagonal of zeros",
        )
    return (js + js.T) / 2


def classical_plane(js: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Coordinates [head, 2] on the two main axes of the space in which the squared distances are `js`.

    Also returns the share of the squared distances that these axes explain.
    """
    means = js.mean(axis=0)
    products = -0.5 * (js - means - means[:, None] + js.mean())
    values, vectors = np.linalg.eigh(products)
    values = np.maximum(values, 0.0)
    points = np.zeros((len(js), 2))
    for axis in range(min(2, len(js))):
        vector = vectors[:, -1 - axis]
        # The sign of an eigenvector is arbitrary. To be deterministic, make the first of its largest entries positive.
        reference = vector[np.argmax(np.abs(vector) > np.abs(vector).max() - 1e-9)]
        points[:, axis] = vector * np.sign(reference) * math.sqrt(values[-1 - axis])
    total = float(values.sum())
    return points, float(values[-2:].sum()) / total if total > SMALLEST_DISTANCE**2 else 1.0


def _metric_plane(distance: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coordinates [head, 2] by metric scaling (SMACOF), which starts from those of classical scaling."""
    from sklearn.manifold import smacof

    if len(distance) < 3 or distance.max() < SMALLEST_DISTANCE:
        return start  # two points, or equal ones, are exact in a plane
    settings = {"n_init": 1, "max_iter": 1000, "eps": 1e-9, "normalized_stress": False}
    points, _ = smacof(distance, init=start, **settings)
    return np.asarray(points - points.mean(axis=0), dtype=np.float64)


def _stress(points: NDArray[np.float64], distance: NDArray[np.float64]) -> float:
    """Normalised error of the distances between points in the plane; 0 if they are exact."""
    in_plane = np.linalg.norm(points[:, None] - points, axis=-1)
    total = np.square(distance).sum()
    return math.sqrt(float(np.square(in_plane - distance).sum() / total)) if total > 0 else 0.0


def _groups(distance: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    """[head]: the cluster of each head, and the silhouette.

    The number of clusters is the one with the largest silhouette. Clusterings in which at least two clusters have
    several heads are preferred. If all heads are equal, there is one cluster and the silhouette is NaN.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.metrics import silhouette_score

    labels = np.zeros(len(distance), dtype=np.int64)
    if len(distance) < 3 or distance.max() < SMALLEST_DISTANCE:
        return labels, math.nan
    tree = linkage(squareform(distance, checks=False), method="average")
    best = (False, math.nan)
    for count in range(2, min(MOST_CLUSTERS, len(distance) - 1) + 1):
        cut = fcluster(tree, count, criterion="maxclust")
        sizes = np.unique(cut, return_counts=True)[1]
        if (
            not 1 < len(sizes) < len(cut)
        ):  # clusters that merge at equal heights cannot be separated
            continue
        # A single outlier and a cluster of all others has a large silhouette, although it does not group the others.
        # Therefore prefer clusterings with two or more clusters of several heads.
        silhouette = float(silhouette_score(distance, cut, metric="precomputed"))
        score = (bool((sizes > 1).sum() > 1), silhouette)
        if math.isnan(best[1]) or score > best:
            best, labels = score, cut
    return _number_by_size(labels), best[1]


def _number_by_size(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber clusters from 0, the largest first; among clusters of equal size, the one with the first head."""
    values, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    new = np.empty(len(values), dtype=np.int64)
    new[order] = np.arange(len(values))
    return new[np.searchsorted(values, labels)]


def _nearest_heads(js: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[head], [head]: index of the nearest other head, and JS between the two; -1 and NaN if there is none."""
    if len(js) < 2:
        return np.full(len(js), -1), np.full(len(js), np.nan)
    others = js.copy()
    np.fill_diagonal(others, np.inf)
    nearest = others.argmin(axis=1)
    return nearest, others[np.arange(len(js)), nearest]


def layer_effect(
    js: NDArray[np.float64], layers: Sequence[int], seed: int = 0
) -> tuple[float, float, float]:
    """Mean divergence within layers, mean divergence between layers, and a p-value by permutation.

    The p-value is the share of permutations of the heads' layers whose divergence within layers is at most the true
    one. The true order counts as one of the permutations.
    """
    layer = np.asarray(layers)
    same = layer[:, None] == layer
    pairs = int((same.sum() - len(layer)) // 2)
    others = int((~same).sum() // 2)
    total = js.sum() / 2
    inside = _inside(js, layer)
    if not pairs or not others:
        within, between = inside / (pairs or math.nan), total / (others or math.nan)
        return within, between, math.nan
    shuffle = np.random.default_rng(seed)
    closer = sum(_inside(js, shuffle.permutation(layer)) <= inside + 1e-12 for _ in range(SHUFFLES))
    return inside / pairs, (total - inside) / others, (1 + closer) / (1 + SHUFFLES)


def _inside(js: NDArray[np.float64], layer: NDArray[np.int64]) -> float:
    """Sum of the divergences between heads of the same layer; each pair counts once."""
    member = (layer[:, None] == np.unique(layer)).astype(np.float64)
    return float(np.sum((js @ member) * member)) / 2
