"""Clusters, planes and twins: known configurations come back, and inputs with nothing in them do not crash."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from headscope.analysis.clusters import classical_plane, clusters_in, clusters_of, layer_effect
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.tables import Row, to_frame


def heads(layers: int, width: int) -> list[Head]:
    return [Head("encoder", layer, head) for layer in range(layers) for head in range(width)]


def squared(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances between points: what JS is to heads."""
    return np.square(points[:, None] - points).sum(axis=-1)


def divergences(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean JS between heads given as [head, row, key], by the textbook."""
    result = np.zeros((len(rows), len(rows)))
    for i, p in enumerate(rows):
        for j, q in enumerate(rows):
            m = (p + q) / 2
            result[i, j] = ((p * np.log(p / m)).sum(-1) + (q * np.log(q / m)).sum(-1)).mean() / 2
    np.fill_diagonal(result, 0.0)
    return (result + result.T) / 2


def planted(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Divergences of 24 heads that are noise around three kinds, and the kinds."""
    chance = np.random.default_rng(seed)
    kinds = np.repeat([0, 1, 2], [12, 8, 4])
    centres = chance.dirichlet(np.full(16, 0.2), size=(3, 10)) + 1e-3
    rows = centres[kinds] * chance.uniform(0.8, 1.25, size=(24, 10, 16))
    return divergences(rows / rows.sum(axis=-1, keepdims=True)), kinds


def test_planted_groups_are_found_and_numbered_by_size() -> None:
    js, kinds = planted()
    result = clusters_of(js, heads(4, 6))
    np.testing.assert_array_equal(result.cluster, kinds)
    assert result.silhouette > 0.7
    assert (kinds[result.nearest] == kinds).all()
    order = np.random.default_rng(0).permutation(24)
    shuffled = clusters_of(js[np.ix_(order, order)], heads(4, 6))
    np.testing.assert_array_equal(shuffled.cluster, kinds[order])


def test_points_of_a_plane_come_back_up_to_a_turn() -> None:
    points = np.random.default_rng(1).normal(size=(15, 2))
    result = clusters_of(squared(points), heads(3, 5))
    np.testing.assert_allclose(squared(result.points), squared(points), atol=1e-6)
    assert result.explained == pytest.approx(1.0)
    assert result.stress == pytest.approx(0.0, abs=1e-6)
    assert result.classical_stress == pytest.approx(0.0, abs=1e-6)


def test_the_classical_plane_is_the_textbooks() -> None:
    js, _ = planted()
    n = len(js)
    centring = np.eye(n) - np.ones((n, n)) / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ js @ centring)
    assert values.min() > -1e-9  # the root of a mean of JS is a Euclidean distance
    plane, explained = classical_plane(js)
    for axis in range(2):
        expected = vectors[:, -1 - axis] * np.sqrt(values[-1 - axis])
        np.testing.assert_allclose(np.abs(plane[:, axis]), np.abs(expected), atol=1e-9)
        assert plane[np.abs(plane[:, axis]).argmax(), axis] > 0
    assert explained == pytest.approx(values[-2:].sum() / values.sum())


def test_metric_scaling_is_never_worse_than_where_it_started() -> None:
    chance = np.random.default_rng(2)
    js = squared(chance.normal(size=(20, 6)))
    result = clusters_of(js, heads(4, 5))
    assert 0 < result.stress < result.classical_stress
    drawn = np.sqrt(squared(result.points))
    true = np.sqrt(js)
    pairs = [(i, j) for i in range(20) for j in range(i)]
    by_hand = sum((drawn[p] - true[p]) ** 2 for p in pairs) / sum(true[p] ** 2 for p in pairs)
    assert result.stress == pytest.approx(math.sqrt(by_hand))


def test_the_same_distances_give_the_same_answer() -> None:
    js, _ = planted()
    first, second = (clusters_of(js, heads(4, 6)) for _ in range(2))
    assert first.rows() == second.rows()
    assert first.summary() == second.summary()


# Layers


def test_heads_that_are_alike_within_layers_are_found_to_be() -> None:
    chance = np.random.default_rng(3)
    places = np.repeat(chance.normal(size=(6, 3)), 4, axis=0) + 0.3 * chance.normal(size=(24, 3))
    js = squared(places)
    within, between, probability = layer_effect(js, [head.layer for head in heads(6, 4)])
    inside = [js[i, j] for i in range(24) for j in range(i) if i // 4 == j // 4]
    outside = [js[i, j] for i in range(24) for j in range(i) if i // 4 != j // 4]
    assert within == pytest.approx(sum(inside) / len(inside))
    assert between == pytest.approx(sum(outside) / len(outside))
    assert probability == 1 / 2000


def test_without_a_layer_effect_small_probabilities_are_as_rare_as_they_say() -> None:
    actual = []
    for seed in range(40):
        js = squared(np.random.default_rng(seed).normal(size=(12, 3)))
        actual.append(layer_effect(js, [i // 3 for i in range(12)], seed=seed)[2])
    assert sum(p <= 0.05 for p in actual) <= 6  # 2 expected of 40; 7 or more in 1 of 200 such tests
    assert 0.3 < np.mean(actual) < 0.7


# Nothing to find


def test_one_head_is_a_cluster_without_a_most_similar_head() -> None:
    result = clusters_of(np.zeros((1, 1)), heads(1, 1))
    (row,) = result.rows()
    assert (row["x"], row["y"], row["cluster"]) == (0.0, 0.0, 0)
    assert row["twin_layer"] is row["twin_head"] is row["twin_distance"] is None
    assert result.summary()["ratio"] is None


def test_two_heads_are_most_similar_to_each_other() -> None:
    result = clusters_of(np.array([[0.0, 0.25], [0.25, 0.0]]), heads(2, 1))
    rows = result.rows()
    assert [(row["twin_layer"], row["twin_head"], row["twin_distance"]) for row in rows] == [
        (1, 0, 0.25),
        (0, 0, 0.25),
    ]
    assert sorted(abs(row["x"]) for row in rows) == pytest.approx(
        [0.25, 0.25]
    )  # half a nat apart, by the root
    assert {row["cluster"] for row in rows} == {0}
    assert math.isnan(result.within)
    assert result.between == 0.25


@pytest.mark.parametrize("count", [2, 3, 12])
def test_identical_heads_are_one_cluster(count: int) -> None:
    result = clusters_of(np.zeros((count, count)), heads(1, count))
    assert not result.cluster.any()
    assert not result.points.any()
    assert (result.stress, result.classical_stress) == (0.0, 0.0)
    assert (result.nearest_divergence == 0).all()
    json.dumps(result.summary(), allow_nan=False)


def test_some_identical_heads_among_others() -> None:
    js = squared(np.repeat(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), 3, axis=0))
    result = clusters_of(js, heads(3, 3))
    np.testing.assert_array_equal(result.cluster, np.repeat([0, 1, 2], 3))
    assert result.silhouette == pytest.approx(1.0)
    assert np.isfinite(result.points).all()


# What is refused, and a study's stacks


@pytest.mark.parametrize(
    ("js", "message"),
    [
        (np.zeros((2, 3)), "a matrix of 2 x 3 for 2 heads. Expected a row per head."),
        (np.array([[0.0, np.nan], [np.nan, 0.0]]), "these are not divergences between heads."),
        (np.array([[0.0, -0.1], [-0.1, 0.0]]), "these are not divergences between heads."),
        (np.array([[0.0, 0.1], [0.2, 0.0]]), "these are not divergences between heads."),
        (np.array([[0.3, 0.1], [0.1, 0.3]]), "these are not divergences between heads."),
    ],
)
def test_what_is_not_a_matrix_of_divergences_is_refused(
    js: NDArray[np.float64], message: str
) -> None:
    with pytest.raises(HeadscopeError) as refusal:
        clusters_of(js, heads(1, 2))
    finite = " Expected finite numbers of 0 or more, the same on both sides of a diagonal of zeros."
    assert str(refusal.value) == message + ("" if "matrix of" in message else finite)


def test_every_stack_of_a_study_has_its_own_clusters() -> None:
    js, _ = planted()
    table = to_frame(
        Row(stack, layer, head, "entropy", 1.0, 0.9, 1.1, 9)
        for stack, layers in (("encoder", 4), ("decoder", 1), ("cross", 1))
        for layer in range(layers)
        for head in range(6)
    )
    nothing = np.full((6, 6), np.nan)  # no row could be compared
    maps = {"js/encoder": js, "js/cross": js[:6, :6], "js/decoder": nothing, "offset/encoder": js}
    result = clusters_in(table, maps)
    assert set(result) == {"encoder", "cross"}
    assert result["encoder"].heads == tuple(heads(4, 6))
    rows = pd.DataFrame(result["encoder"].rows())
    assert list(rows) == [
        "stack",
        "layer",
        "head",
        "x",
        "y",
        "cluster",
        "twin_layer",
        "twin_head",
        "twin_distance",
    ]
    assert clusters_in(table, maps, "js-content") == {}
