"""The race: its estimates are unbiased, its verdicts those of all examples, at the stated rate."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headscope.importance.racing import Guess, guess, looks, settled
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


def test_verdicts_reached_early_are_those_of_all_examples() -> None:
    """Over many races, at a rate of 5 % for any wrong verdict: each race decides forty heads."""
    wrong, races, early, total = 0, 40, 0, 0
    for seed in range(races):
        chance = np.random.default_rng(seed)
        changes, known = population(chance)
        t = changes.mean(axis=0) / (changes.std(axis=0, ddof=1) / np.sqrt(len(changes)))
        final = holm(2 * stats.norm.sf(np.abs(t))) < 0.05
        live = np.ones(changes.shape[1], dtype=bool)
        said = final.copy()
        sizes = looks(len(changes))
        for size in sizes[:-1]:
            some = np.arange(size)
            found = guess(changes[some][:, live], known[:, live], some)
            done = settled(found, len(changes), error_rate=0.05, looks_planned=len(sizes), heads=changes.shape[1])
            out = np.flatnonzero(live)[done]
            scale = found.spread[done] / np.sqrt(len(changes))
            said[out] = np.abs(found.value[done]) / scale > stats.norm.isf(0.05 / 2 / 40)
            early += len(out)
            live[out] = False
        total += changes.shape[1]
        wrong += bool((said != final).any())
    assert wrong <= 5  # 2 expected of 40 at most
    assert early > 0.3 * total  # and it is worth it


def test_a_head_near_the_border_is_not_settled() -> None:
    found = Guess(np.array([3.3]), np.array([0.5]), np.array([1.0 * np.sqrt(100)]))
    assert not settled(found, 100, error_rate=0.05, looks_planned=3, heads=40)[0]
    far = Guess(np.array([30.0]), np.array([0.5]), np.array([1.0 * np.sqrt(100)]))
    assert settled(far, 100, error_rate=0.05, looks_planned=3, heads=40)[0]


def test_an_estimate_worse_than_the_result_s_own_interval_is_not_settled() -> None:
    vague = Guess(np.array([30.0]), np.array([1.1]), np.array([1.0 * np.sqrt(100)]))
    assert not settled(vague, 100, error_rate=0.05, looks_planned=3, heads=40)[0]


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_a_stricter_rate_settles_fewer(rate: float) -> None:
    changes, known = population(np.random.default_rng(3))
    found = guess(changes[:120], known, np.arange(120))
    strict = settled(found, 512, error_rate=1e-6, looks_planned=4, heads=40)
    mild = settled(found, 512, error_rate=rate, looks_planned=4, heads=40)
    assert strict.sum() < mild.sum()


def test_a_settled_head_s_interval_holds_the_guess_and_its_verdict_is_that_foretold() -> None:
    changes, known = population(np.random.default_rng(4))
    found = guess(changes[:100], known, np.arange(100))
    one = found.estimate(39, 100, len(changes))
    final = found.spread[39] / np.sqrt(len(changes))
    assert one.half == pytest.approx(1.96 * np.sqrt(final**2 + found.error[39] ** 2))
    assert one.p == pytest.approx(2 * stats.norm.sf(abs(found.value[39]) / final))
    assert (one.value, one.count) == (found.value[39], 100)
