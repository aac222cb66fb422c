"""Batches: every sequence once, the longest first, cut where it costs least."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from headscope.data.encode import Counts, Sequence, Side
from headscope.errors import HeadscopeError
from headscope.tasks import prepared as prepared_module
from headscope.tasks.prepared import OVERHEAD, Prepared, plan_batches


def prepared(lengths: list[int]) -> Prepared:
    sequences = [
        Sequence(i, Side([0] * length, [0] * length, [0] * length), None)
        for i, length in enumerate(lengths)
    ]
    return Prepared([], sequences, [], None, Counts())


def cost(batches: list[list[int]], lengths: list[int]) -> int:
    return sum(len(batch) * max(lengths[i] for i in batch) + OVERHEAD for batch in batches)


def test_every_sequence_is_in_one_batch_and_the_longest_come_first() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=100).tolist()
    result = plan_batches(prepared(lengths), 8)
    assert sorted(i for batch in result for i in batch) == list(range(100))
    assert max(map(len, result)) <= 8
    widths = [lengths[i] for batch in result for i in batch]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_cut_costs_less(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(3, 400, size=9).tolist()
    order = sorted(range(9), key=lambda i: -lengths[i])
    ways = [
        [order[a:b] for a, b in zip((0, *cuts), (*cuts, 9), strict=True)]
        for count in range(9)
        for cuts in combinations(range(1, 9), count)
    ]
    least = min(cost(way, lengths) for way in ways if max(map(len, way)) <= 4)
    assert cost(plan_batches(prepared(lengths), 4), lengths) == least


def test_like_lengths_fill_their_batches_and_some_can_be_asked_for() -> None:
    assert [len(batch) for batch in plan_batches(prepared([20] * 64), 32)] == [32, 32]
    assert plan_batches(prepared([5, 9, 7, 9]), 32, among=[2, 0]) == [[2, 0]]


def test_work_grows_with_the_batch_size_and_not_with_its_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Overhead:
        """Counts how often a batch's cost is added up."""

        added = 0

        def __radd__(self, other: float) -> float:
            self.added += 1
            return other + OVERHEAD

    many = prepared(np.random.default_rng(0).integers(3, 200, size=3_000).tolist())
    expected = {size: plan_batches(many, size) for size in (16, 256)}
    for size, batches in expected.items():
        counted = Overhead()
        monkeypatch.setattr(prepared_module, "OVERHEAD", counted)
        assert plan_batches(many, size) == batches
        assert counted.added <= 3_000 * size


def test_no_batch_of_nothing() -> None:
    with pytest.raises(HeadscopeError, match="0 is too few"):
        plan_batches(prepared([3]), 0)
