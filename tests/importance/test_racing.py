"""The race: its estimates are unbiased, its verdicts those of all examples, at the stated rate."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headscope.heads import Head
from headscope.importance.racing import Race, clear, guess, looks
from headscope.importance.significance import holm


def population(chance: np.random.Generator, count: int = 512, heads: int = 40) -> tuple[NDArray, NDArray]:
    """Changes [item, head] of heads from useless to vital, and what the gradient says of them."""
    size = np.concatenate([np.zeros(heads // 2), np.linspace(0.02, 0.6, heads - heads // 2)])
    signal = chance.normal(size=(count, heads)) * 0.9
    changes = size + signal + chance.normal(size=(count, heads)) * 0.3
    return changes, np.stack([signal + 0.5 * size, signal**2], axis=2)


def test_looks_end_with_all_examples() -> None:
    assert looks(10) == [10]
    sizes = looks(512)
    assert sizes[-1] == 512
    assert sizes == sorted(set(sizes))
    assert sizes[0] <= 64


def test_the_guess_after_all_examples_is_the_mean_and_certain() -> None:
    changes, known = population(np.random.default_rng(0))
    found = guess(changes, known, np.arange(len(changes)))
    assert np.allclose(found.value, changes.mean(axis=0))
    assert np.allclose(found.error, 0)


def test_the_guess_s_error_is_as_large_as_it_says() -> None:
    chance = np.random.default_rng(1)
    changes, known = population(chance)
    truth = changes.mean(axis=0)
    within = []
    for _ in range(60):
        some = chance.permutation(len(changes))[:80]
        found = guess(changes[some], known, some)
        within.append(np.abs(found.value - truth) < 1.96 * found.error)
    assert 0.91 < np.mean(within) < 0.98
    plain = changes.std(axis=0) * np.sqrt((1 - 80 / 512) / 80)
    assert (found.error < 0.5 * plain).mean() > 0.9  # what the gradient knows makes it better


def raced(changes: NDArray, known: NDArray, rate: float = 0.05) -> tuple[Race, NDArray]:
    """A whole race over the examples in their order, and who is significant in the end."""
    heads = [Head("self", 0, h) for h in range(changes.shape[1])]
    race = Race(heads, known, rate)
    for size in race.sizes[:-1]:
        if race.live:
            race.look(changes[:size, [head.head for head in race.live]], np.arange(size))
    error = np.maximum(changes.std(axis=0, ddof=1) / np.sqrt(len(changes)), 1e-12)
    t = changes.mean(axis=0) / error
    return race, holm(2 * stats.t.sf(np.abs(t), len(changes) - 1)) < 0.05


def test_verdicts_reached_early_are_those_of_all_examples() -> None:
    """Over many races, at a rate of 5 % for any wrong verdict: each race decides forty heads."""
    wrong, races, early = 0, 40, 0
    for seed in range(races):
        race, final = raced(*population(np.random.default_rng(seed)))
        wrong += any(final[head.head] != (head in race.significant) for head in race.estimates)
        early += len(race.estimates)
    assert wrong <= 5  # 2 expected of 40 at most
    assert early > 0.4 * races * 40  # and it is worth it


def test_the_estimates_of_settled_heads_are_near_the_result() -> None:
    changes, known = population(np.random.default_rng(11))
    race, _ = raced(changes, known)
    half = 1.96 * changes.std(axis=0, ddof=1) / np.sqrt(len(changes))
    assert len(race.estimates) > 10
    for head, one in race.estimates.items():
        assert abs(one.value - changes[:, head.head].mean()) < 2 * half[head.head]
        assert one.count < len(changes)


def test_a_stricter_rate_settles_fewer() -> None:
    changes, known = population(np.random.default_rng(3))
    few, some, many = (raced(changes, known, rate)[0] for rate in (1e-6, 0.05, 0.3))
    examples = [sum(one.count for one in race.estimates.values()) + 512 * len(race.live) for race in (few, some, many)]
    assert examples[0] > examples[1] > examples[2]


def holm_by_hand(t: NDArray, count: int) -> set[int]:
    found: set[int] = set()
    for step, head in enumerate(np.argsort(-np.abs(t))):
        if 2 * stats.t.sf(abs(t[head]), count - 1) >= 0.05 / (len(t) - step):
            break
        found.add(int(head))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_what_is_clear_holds_for_whatever_lies_between_the_bounds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    middle = np.abs(chance.normal(0, 3, size=12))
    width = chance.uniform(0, 1.5, size=12)
    least, most = np.maximum(middle - width, 0), middle + width
    sure, never = clear(least, most, 200)
    for _ in range(50):
        significant = holm_by_hand(chance.uniform(least, most), 200)
        assert set(np.flatnonzero(sure)) <= significant
        assert not significant & set(np.flatnonzero(never))
    same, others = clear(middle, middle, 200)
    assert set(np.flatnonzero(same)) == holm_by_hand(middle, 200) == set(np.flatnonzero(~others))


def test_an_estimate_worse_than_the_result_s_own_interval_is_not_settled() -> None:
    chance = np.random.default_rng(0)
    changes = 30 + chance.normal(size=(512, 1))
    nothing_known = chance.normal(size=(512, 1, 1))
    race, _ = raced(changes, nothing_known)
    assert [one.count for one in race.estimates.values()] == [size for size in race.sizes if size > 256][:1]


def test_a_head_that_changes_nothing_is_settled_as_not_significant() -> None:
    race, _ = raced(np.zeros((512, 2)), np.zeros((512, 2, 2)))
    assert not race.live
    assert not race.significant
    assert {one.value for one in race.estimates.values()} == {0.0}


def test_a_settled_head_s_interval_holds_the_guess_and_its_verdict_is_that_foretold() -> None:
    changes, known = population(np.random.default_rng(4))
    found = guess(changes[:100], known, np.arange(100))
    one = found.estimate(39, 100, len(changes))
    final = found.spread[39] / np.sqrt(len(changes))
    assert one.half == pytest.approx(1.96 * np.sqrt(final**2 + found.error[39] ** 2))
    assert one.p == pytest.approx(2 * stats.norm.sf(abs(found.value[39]) / final))
    assert (one.value, one.count) == (found.value[39], 100)
