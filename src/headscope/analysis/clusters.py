"""Which heads form groups, which is each head's twin, and are heads of one layer alike?

Everything here follows from the matrix of mean Jensen-Shannon divergences between heads. Its square root is a
distance in a Euclidean space (JS itself, which Clark's code takes, is not), so the plane of two axes is found by
classical scaling, exactly and without chance; metric scaling (SMACOF) starts there and brings the distances on paper
nearer to the true ones. Groups come from average linkage over the same distances, 2 to 12 of them by silhouette.
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
SHUFFLES = 1999
SMALLEST_DISTANCE = 1e-6  # between heads that are told apart; below it is rounding


@dataclass(frozen=True)
class Clusters:
    """What the distances between the heads of one stack say.

    points            [head, 2]: the plane of metric scaling, in the units of the distance, √nats
    cluster           of each head: counted from 0, the largest first
    twin              of each head: the number of the head nearest to it; -1 if there is no other
    twin_divergence   JS between the two, nats
    explained         the share of the squared distances that the two axes of classical scaling hold
    classical_stress  √(Σ (drawn - true distance)² / Σ true²) of classical scaling; stress: of `points`
    silhouette        of the clusters, -1 to 1: by it their number was chosen; NaN where there is one cluster
    within, between   mean JS between heads of one layer, and of different layers; NaN where there are none
    probability       of a within/between ratio this small if heads had no layer (shuffled labels); NaN likewise
    """

    heads: tuple[Head, ...]
    points: NDArray[np.float64]
    cluster: NDArray[np.int64]
    twin: NDArray[np.int64]
    twin_divergence: NDArray[np.float64]
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
        """One row a head, as in clusters.csv; the twin is empty where there is none."""
        twins = [self.heads[i] if i >= 0 else None for i in self.twin]
        return [
            {
                **asdict(head),
                "x": float(x),
                "y": float(y),
                "cluster": int(cluster),
                "twin_layer": None if twin is None else twin.layer,
                "twin_head": None if twin is None else twin.head,
                "twin_distance": None if twin is None else float(divergence),
            }
            for head, (x, y), cluster, twin, divergence in zip(
                self.heads, self.points, self.cluster, twins, self.twin_divergence, strict=True
            )
        ]

    def summary(self) -> Section:
        """The numbers that are not of one head, for run.json; None where there is none."""
        numbers = {
            "clusters": int(self.cluster.max()) + 1,
            "silhouette": self.silhouette,
            "explained": self.explained,
            "stress": self.stress,
            "classical_stress": self.classical_stress,
            "within_layers": self.within,
            "between_layers": self.between,
            "ratio": self.ratio,
            "probability": self.probability,
        }
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def clusters_in(
    heads: pd.DataFrame, maps: Mapping[str, NDArray[Any]], kind: str = "js"
) -> dict[str, Clusters]:
    """The clusters of each stack of a study, from its `heads` and `maps`; kind "js" or "js-content".

    A stack whose heads could not all be compared has none.
    """
    found = {}
    for name, matrix in sorted(maps.items()):
        prefix, _, stack = name.partition("/")
        if prefix != kind or not np.isfinite(matrix).all():
            continue
        rows = heads.loc[heads["stack"] == stack, ["layer", "head"]].drop_duplicates()
        pairs = sorted(rows.itertuples(index=False, name=None))
        addresses = [Head(stack, int(layer), int(head)) for layer, head in pairs]
        if len(addresses) == len(matrix):
            found[stack] = clusters_of(matrix, addresses)
    return found


def clusters_of(js: NDArray[np.float64], heads: Sequence[Head], *, seed: int = 0) -> Clusters:
    """`js` is the mean JS divergence [head, head] in nats; `seed` is of the shuffled layers."""
    js = _checked(np.asarray(js, dtype=np.float64), len(heads))
    distance = np.sqrt(js)
    classical, explained = classical_plane(js)
    points = _metric_plane(distance, classical)
    cluster, silhouette = _groups(distance)
    twin, divergence = _twins(js)
    within, between, probability = layer_effect(js, [head.layer for head in heads], seed)
    return Clusters(
        heads=tuple(heads),
        points=points,
        cluster=cluster,
        twin=twin,
        twin_divergence=divergence,
        explained=explained,
        classical_stress=_stress(classical, distance),
        stress=_stress(points, distance),
        silhouette=silhouette,
        within=within,
        between=between,
        probability=probability,
    )


def _checked(js: NDArray[np.float64], heads: int) -> NDArray[np.float64]:
    if heads == 0 or js.shape != (heads, heads):
        raise HeadscopeError(
            f"a matrix of {' x '.join(map(str, js.shape))} for {heads} heads",
            expected="a row a head",
        )
    if (
        not np.isfinite(js).all()
        or (js < 0).any()
        or not np.allclose(js, js.T, atol=1e-9)
        or np.diag(js).any()
    ):
        raise HeadscopeError(
            "these are not divergences between heads",
            expected="finite numbers of 0 or more, the same on both sides of a diagonal of zeros",
        )
    return (js + js.T) / 2


def classical_plane(js: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The two main axes [head, 2] of the space in which the squared distances are `js`, and their share of it."""
    means = js.mean(axis=0)
    products = -0.5 * (js - means - means[:, None] + js.mean())
    values, vectors = np.linalg.eigh(products)
    values = np.maximum(values, 0.0)
    points = np.zeros((len(js), 2))
    for axis in range(min(2, len(js))):
        vector = vectors[:, -1 - axis]
        # The first of those farthest out
        far = vector[np.argmax(np.abs(vector) > np.abs(vector).max() - 1e-9)]
        points[:, axis] = vector * np.sign(far) * math.sqrt(values[-1 - axis])
    total = float(values.sum())
    return points, float(values[-2:].sum()) / total if total > SMALLEST_DISTANCE**2 else 1.0


def _metric_plane(distance: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    from sklearn.manifold import smacof

    if len(distance) < 3 or distance.max() < SMALLEST_DISTANCE:
        return start  # already exact
    points, _ = smacof(
        distance, init=start, n_init=1, max_iter=1000, eps=1e-9, normalized_stress=False
    )
    return np.asarray(points - points.mean(axis=0), dtype=np.float64)


def _stress(points: NDArray[np.float64], distance: NDArray[np.float64]) -> float:
    drawn = np.linalg.norm(points[:, None] - points, axis=-1)
    total = np.square(distance).sum()
    return math.sqrt(float(np.square(drawn - distance).sum() / total)) if total > 0 else 0.0


def _groups(distance: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    """The cluster of each head, as many as make the silhouette largest with two or more clusters of several heads.

    One cluster where no heads can be told apart.
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
        if not 1 < len(sizes) < len(cut):  # equal heights in the tree can give fewer than asked for
            continue
        # One outlier against all others has a large silhouette and says nothing of the others.
        here = (
            int((sizes > 1).sum()) > 1,
            float(silhouette_score(distance, cut, metric="precomputed")),
        )
        if math.isnan(best[1]) or here > best:
            best, labels = here, cut
    return _numbered(labels), best[1]


def _numbered(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """From 0, the largest cluster first; of two of one size, the one with the earlier head."""
    found, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    new = np.empty(len(found), dtype=np.int64)
    new[order] = np.arange(len(found))
    return new[np.searchsorted(found, labels)]


def _twins(js: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if len(js) < 2:
        return np.full(len(js), -1), np.full(len(js), np.nan)
    others = js.copy()
    np.fill_diagonal(others, np.inf)
    twin = others.argmin(axis=1)
    return twin, others[np.arange(len(js)), twin]


def layer_effect(
    js: NDArray[np.float64], layers: Sequence[int], seed: int = 0
) -> tuple[float, float, float]:
    """Mean divergence within a layer and between layers, and how often shuffled layers are as close within.

    Shuffling hands the layers out anew; the true one counts as one of the shuffles, so the least probability
    is 1 / 2000.
    """
    layer = np.asarray(layers)
    same = layer[:, None] == layer
    pairs = int((same.sum() - len(layer)) // 2)
    others = int((~same).sum() // 2)
    total = js.sum() / 2
    inside = _inside(js, layer)
    if not pairs or not others:
        return (
            inside / pairs if pairs else math.nan,
            total / others if others else math.nan,
            math.nan,
        )
    shuffle = np.random.default_rng(seed)
    closer = sum(_inside(js, shuffle.permutation(layer)) <= inside + 1e-12 for _ in range(SHUFFLES))
    return inside / pairs, (total - inside) / others, (1 + closer) / (1 + SHUFFLES)


def _inside(js: NDArray[np.float64], layer: NDArray[np.int64]) -> float:
    """The sum of the divergences between heads of one layer, each pair once."""
    member = (layer[:, None] == np.unique(layer)).astype(np.float64)
    return float(np.sum((js @ member) * member)) / 2
