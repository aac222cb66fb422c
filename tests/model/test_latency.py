"""Speed is measured: with a clock of the tests' own, what is told is exactly what the clock was made to say."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headscope.errors import HeadscopeError
from headscope.model import latency as speed
from headscope.model.attention_model import AttentionModel
from headscope.model.latency import (
    LayerTimes,
    measure,
    measure_layers,
    median_interval,
    prune_share,
    sample_batch,
    time_interleaved,
)
from headscope.model.surgery import prune, units
from tiny import FAMILIES, shared


class Clock:
    """Stands still unless it is moved on; `slower` makes everything of a turn take longer, as a busy machine does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slower = 0.0, 1.0
        monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def taking(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds * self.slower

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def by_heads(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, set[tuple[int, ...]]]]:
    """Models run for real, and by the clock take a second and a quarter of one for each head; returns what was run."""
    seen: list[tuple[int, set[tuple[int, ...]]]] = []
    real = speed.timed_forward

    def forward(model: AttentionModel, batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
        run, take = real(model, batch), clock.taking(1 + 0.25 * len(model.heads))

        def both() -> None:
            run()
            take()
            seen.append((len(model.heads), {tuple(value.shape) for value in batch.values()}))

        return both

    monkeypatch.setattr(speed, "timed_forward", forward)
    monkeypatch.setattr(speed, "peak_bytes", lambda run, device: 0)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_measured_with_fewer_heads(
    family: str, by_heads: list[tuple[int, set[tuple[int, ...]]]]
) -> None:
    model = shared(family)
    result = measure_layers(model, batch_size=2, length=7, repeats=2)
    counts = [round(share * len(model.heads)) for share in result.share]
    assert counts[0] == len(model.heads)
    assert counts[-1] == min(len(unit) for unit in units(model)), "one unit stays, as one must"
    assert counts == sorted(set(counts), reverse=True)
    assert result.time == pytest.approx(
        [(1 + 0.25 * count) / (1 + 0.25 * counts[0]) for count in counts]
    )
    assert result.bound == pytest.approx((1 + 0.25 * counts[0]) / (1 + 0.25 * counts[-1]))
    turns = 2 + speed.WARM
    assert sorted(heads for heads, _ in by_heads) == sorted(
        count for count in counts for _ in range(turns)
    )
    if model.family.takes_text:
        assert {shape[:2] for _, shapes in by_heads for shape in shapes} == {(2, 7)}


def test_runs_take_turns_forwards_and_backwards_and_the_first_turns_do_not_count(
    clock: Clock,
) -> None:
    order: list[int] = []
    calls: list[tuple[int, int]] = []

    def run(position: int) -> Callable[[], None]:
        def call() -> None:
            order.append(position)
            turn = (len(order) - 1) // 3
            clock.now += (position + 1) * (100 if turn < speed.WARM else turn)

        return call

    times = time_interleaved(
        [run(position) for position in range(3)], 4, lambda done, total: calls.append((done, total))
    )
    assert times == pytest.approx(np.outer([2, 3, 4, 5], [1, 2, 3]))
    assert order[:6] == [2, 1, 0, 0, 1, 2]
    assert order == order[:6] * 3
    assert calls == [(turn, 6) for turn in range(1, 7)]


def test_what_was_cut_is_counted(by_heads: list[tuple[int, set[tuple[int, ...]]]]) -> None:
    model = shared("bert")
    cut = prune(model, "0.1,1.*")
    before, after = measure([model, cut], batch_size=2, length=5, repeats=2)
    assert (before.heads, after.heads) == (8, 3)
    assert before.parameters - after.parameters == 5 * (4 * 32 * 8 + 3 * 8)
    assert before.megabytes - after.megabytes == pytest.approx(4 * 5 * (4 * 32 * 8 + 3 * 8) / 1e6)
    assert (before.ratio, before.low, before.high) == (1.0, 1.0, 1.0)
    assert (before.seconds, after.seconds) == pytest.approx((3.0, 1.75))
    assert (before.throughput, after.throughput) == pytest.approx((2 / 3.0, 2 / 1.75))
    assert (after.ratio, after.low, after.high) == pytest.approx((1.75 / 3.0,) * 3)


def test_a_busy_moment_hits_all_alike_and_moves_no_ratio(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns of the machine's own slowness, and three in which one model alone was held up."""
    model, cut = shared("bert"), prune(shared("bert"), "0.1")
    count = {id(model): 0, id(cut): 0}

    def forward(item: AttentionModel, batch: dict[str, torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            turn = count[id(item)] = count[id(item)] + 1
            held_up = 9.0 if item is cut and turn in (5, 8, 11) else 1.0
            clock.now += (2.0 if item is model else 1.5) * (1 + turn % 5) * held_up

        return run

    monkeypatch.setattr(speed, "timed_forward", forward)
    monkeypatch.setattr(speed, "peak_bytes", lambda run, device: 0)
    before, after = measure([model, cut], batch_size=1, length=5, repeats=12)
    assert (after.ratio, after.low) == pytest.approx((0.75, 0.75))
    assert after.high == pytest.approx(0.75 * 9), (
        "three of twelve are the 95 % interval's last rank but two"
    )
    fastest = (
        2.0 * (1 + 1 + 2) / 3,
        1.5 * (1 + 2 + 3) / 3,
    )  # a quarter of the turns; the cut one lost two good ones
    assert (before.seconds, after.seconds) == pytest.approx(fastest)


@pytest.mark.parametrize("count", [2, 5, 6, 9, 12, 20, 31])
def test_the_interval_of_a_median_holds_it_95_times_of_100_and_is_the_narrowest_that_does(
    count: int,
) -> None:
    """The true median is below the k-th of n values as often as fewer than k of n coins show heads."""
    value, low, high = median_interval(
        np.random.default_rng(count).permutation(count).astype(float)
    )
    assert value == (count - 1) / 2
    rank = int(low)
    assert high == count - 1 - rank

    def held(outermost: int) -> float:
        return 1 - 2 * sum(comb(count, k) for k in range(outermost + 1)) / 2**count

    assert held(rank) >= 0.95 or rank == 0, "with five values or fewer nothing holds it so often"
    assert held(rank + 1) < 0.95


def test_a_forward_pass_is_what_is_measured(clock: Clock) -> None:
    """Time passes in forward passes alone: a tenth of a second in one model, three in the other."""
    models = [prune(shared("bert"), "0.1"), prune(shared("bert"), "0.2")]
    for model, take in zip(models, map(clock.taking, (0.1, 0.3)), strict=True):
        model.model.register_forward_pre_hook(lambda *_, take=take: take())
    before, after = measure(models, batch_size=1, length=5, repeats=3)
    assert (before.seconds, after.seconds) == pytest.approx((0.1, 0.3))
    assert after.ratio == pytest.approx(3)


def test_the_real_clock_is_pythons_own() -> None:
    assert speed.time.perf_counter is time.perf_counter


def test_working_memory_is_the_most_that_is_held_at_a_time() -> None:
    def together() -> None:
        first, other = torch.ones(1_000_000), torch.ones(500_000)
        del first, other

    def in_turn() -> None:
        for size in (1_000_000, 500_000):
            held = torch.ones(size)
            del held

    for run, wanted in ((together, 6e6), (in_turn, 4e6)):
        assert wanted <= speed.peak_bytes(run, torch.device("cpu")) < wanted + 1e4, run.__name__


def test_the_batch_is_as_large_as_asked_for() -> None:
    inputs = sample_batch(shared("bert"), 3, 17)
    assert {tuple(value.shape) for value in inputs.values()} == {(3, 17)}
    assert inputs["attention_mask"].all()
    with pytest.raises(HeadscopeError, match="221 tokens are too many"):
        sample_batch(shared("bert"), 1, 221)


@pytest.mark.parametrize(
    ("share", "left"), [(1.0, [4, 4]), (0.75, [3, 3]), (0.5, [2, 2]), (0.25, [1, 1]), (0, [0, 1])]
)
def test_thinning_leaves_the_share_in_every_layer(share: float, left: list[int]) -> None:
    model = prune_share(shared("bert"), share)
    assert [sum(head.layer == layer for head in model.heads) for layer in range(2)] == left
    assert len(shared("bert").heads) == 8, "the model itself is untouched"


def test_between_two_measurements_the_time_is_between_them() -> None:
    result = LayerTimes((1.0, 0.5, 0.0), (1.0, 0.8, 0.5))
    assert [result.at(share) for share in (1.0, 0.75, 0.5, 0.1, 0.0)] == pytest.approx(
        [1.0, 0.9, 0.8, 0.56, 0.5]
    )
    assert result.bound == pytest.approx(2.0)
