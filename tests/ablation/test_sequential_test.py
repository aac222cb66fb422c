"""The sequential test: its estimates are unbiased, its verdicts those of all examples, at the stated rate."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.sequential_test import (
    LEAST,
    SequentialTest,
    StratifiedSample,
    estimate_means,
    pocock_bound,
    verdicts_between,
)
from headscope.ablation.significance import holm
from headscope.heads import Head
from headscope.tables import Row


def population(
    chance: np.random.Generator, count: int = 512, heads: int = 40
) -> tuple[NDArray, NDArray]:
    """Changes [item, head] of heads from useless to vital, and what the gradient says of them.

    As in real models, a few examples are sensitive to all heads, and there the gradient errs most.
    """
    size = np.concatenate([np.zeros(heads // 2), np.linspace(0.02, 0.6, heads - heads // 2)])
    sensitive = chance.exponential(size=(count, 1))
    terms = chance.normal(size=(count, heads)) * sensitive * 0.9
    changes = size - terms + 0.3 * sensitive * chance.normal(size=(count, heads)) + 0.05 * terms**2
    return changes, terms


def run_test(
    changes: NDArray, terms: NDArray, rate: float = 0.05, seed: int = 0
) -> tuple[SequentialTest, NDArray]:
    """A whole test, and who is significant in the end."""
    heads = [Head("self", 0, h) for h in range(changes.shape[1])]
    test = SequentialTest(heads, terms, rate, seed)
    for look in range(len(test.sample.counts) - 1):
        if test.live:
            hidden = np.full_like(changes, np.nan)  # what was not run is not there
            run = np.concatenate(test.sample.examples(look))
            hidden[run] = changes[run]
            test.look(look, hidden[:, [head.head for head in test.live]])
    error = np.maximum(changes.std(axis=0, ddof=1) / np.sqrt(len(changes)), 1e-12)
    return test, holm(2 * stats.t.sf(np.abs(changes.mean(axis=0) / error), len(changes) - 1)) < 0.05


# Which examples are run


@pytest.mark.parametrize("count", [1, 10, 33, 64, 512, 3000])
def test_the_looks_add_up_to_all_examples_each_once(count: int) -> None:
    sample = StratifiedSample(np.random.default_rng(0).exponential(size=count))
    blocks = sample.blocks()
    assert sorted(item for block in blocks for item in block) == list(range(count))
    sizes = sample.counts.sum(axis=1).tolist()
    assert sizes == sorted(sizes)
    assert [len(block) for block in blocks] == np.diff([0, *sizes]).tolist()
    assert sizes[-1] == count


def test_examples_for_which_heads_matter_are_run_more_densely() -> None:
    size = np.random.default_rng(1).exponential(size=512)
    sample = StratifiedSample(size)
    for counts in sample.counts[:-1]:
        shares = counts / [len(part) for part in sample.strata]
        assert (np.diff(shares) <= 0.02).all(), "the largest come first"
        assert (counts >= LEAST).all()
    assert [size[part].mean() for part in sample.strata] == sorted(
        size[part].mean() for part in sample.strata
    )[::-1]
    assert abs(int(sample.counts[0].sum()) - 32) <= 4


def test_another_seed_takes_other_examples() -> None:
    size = np.random.default_rng(1).exponential(size=512)
    first, same, other = (StratifiedSample(size, seed).blocks()[0] for seed in (0, 0, 1))
    assert first == same != other


# Estimates


def test_the_estimate_after_all_examples_is_the_mean_and_certain() -> None:
    changes, terms = population(np.random.default_rng(0))
    sample = StratifiedSample(np.abs(terms).mean(axis=1))
    result = estimate_means(changes, terms[:, :, None], sample, len(sample.counts) - 1)
    assert np.allclose(result.value, changes.mean(axis=0))
    assert np.allclose(result.error, 0)
    assert np.allclose(result.spread, changes.std(axis=0), rtol=0.05)


def test_the_standard_error_of_an_estimate_is_right() -> None:
    chance = np.random.default_rng(1)
    changes, terms = population(chance)
    truth, within = changes.mean(axis=0), []
    for seed in range(60):
        sample = StratifiedSample(np.sqrt((terms**2).mean(axis=1)), seed)
        result = estimate_means(changes, np.stack([-terms, terms**2], axis=2), sample, 4)
        within.append(np.abs(result.value - truth) < 1.96 * result.error)
    assert 0.91 < np.mean(within) < 0.98
    run = int(sample.counts[4].sum())
    plain = changes.std(axis=0) * np.sqrt((1 - run / 512) / run)
    assert (result.error < 0.3 * plain).mean() > 0.9  # what the gradient knows makes it better


def test_without_predictors_it_is_the_mean_by_strata() -> None:
    changes, terms = population(np.random.default_rng(2))
    sample = StratifiedSample(np.abs(terms).mean(axis=1))
    result = estimate_means(changes, np.empty((512, 40, 0)), sample, 3)
    means = [changes[items].mean(axis=0) for items in sample.examples(3)]
    shares = [len(part) / 512 for part in sample.strata]
    assert np.allclose(result.value, np.average(means, axis=0, weights=shares))


# Verdicts


def test_verdicts_reached_early_are_those_of_all_examples() -> None:
    """At a rate of 5 % for a head: over forty tests of forty heads."""
    wrong, tests, early, examples = 0, 40, 0, 0
    for seed in range(tests):
        test, final = run_test(*population(np.random.default_rng(seed)), seed=seed)
        wrong += sum(final[head.head] != (head in test.significant) for head in test.settled)
        early += len(test.settled)
        examples += sum(one.count for one in test.settled.values()) + 512 * len(test.live)
    assert wrong <= 0.05 * early
    assert examples < 0.3 * tests * 40 * 512  # and it is worth it


def test_the_estimates_of_settled_heads_are_near_the_result() -> None:
    changes, terms = population(np.random.default_rng(11))
    test, _ = run_test(changes, terms)
    half = 1.96 * changes.std(axis=0, ddof=1) / np.sqrt(len(changes))
    assert len(test.settled) > 10
    for head, item in test.settled.items():
        assert abs(item.value - changes[:, head.head].mean()) < 2 * half[head.head]
        assert item.count < len(changes)


def test_a_stricter_rate_takes_more_examples() -> None:
    changes, terms = population(np.random.default_rng(3))
    tests = [run_test(changes, terms, rate)[0] for rate in (1e-6, 0.05, 0.3)]
    few, some, many = (
        sum(one.count for one in test.settled.values()) + 512 * len(test.live) for test in tests
    )
    assert few > some > many


def holm_by_hand(t: NDArray, count: int) -> set[int]:
    result: set[int] = set()
    for step, head in enumerate(np.argsort(-np.abs(t))):
        if 2 * stats.t.sf(abs(t[head]), count - 1) >= 0.05 / (len(t) - step):
            break
        result.add(int(head))
    return result


@pytest.mark.parametrize("seed", range(30))
def test_what_is_clear_holds_for_whatever_lies_between_the_bounds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    middle = np.abs(chance.normal(0, 3, size=12))
    width = chance.uniform(0, 1.5, size=12)
    least, most = np.maximum(middle - width, 0), middle + width
    sure, never = verdicts_between(least, most, 200)
    for _ in range(50):
        significant = holm_by_hand(chance.uniform(least, most), 200)
        assert set(np.flatnonzero(sure)) <= significant
        assert not significant & set(np.flatnonzero(never))
    same, others = verdicts_between(middle, middle, 200)
    assert set(np.flatnonzero(same)) == holm_by_hand(middle, 200) == set(np.flatnonzero(~others))


def test_the_bound_over_looks_is_pocock_s_and_between_one_look_and_bonferroni_s() -> None:
    even = np.arange(1, 6) * 1000
    assert pocock_bound(even, 10**9, 0.05) == pytest.approx(
        2.413, abs=0.03
    )  # published for five even looks
    assert pocock_bound(np.array([100]), 512, 0.05) == pytest.approx(1.96, abs=0.03)
    looks = np.array([32, 40, 50, 62, 78, 97])
    assert 1.96 < pocock_bound(looks, 512, 0.05) < stats.norm.isf(0.025 / 6)
    assert pocock_bound(looks, 512, 0.01) > pocock_bound(looks, 512, 0.05)


def test_an_estimate_worse_than_the_result_s_own_interval_is_not_settled() -> None:
    """The gradient knows nothing of it: half of the examples must be run, clear as the verdict is."""
    chance = np.random.default_rng(0)
    changes, terms = 30 + chance.normal(size=(512, 1)), chance.normal(size=(512, 1))
    test, _ = run_test(changes, terms)
    assert all(one.count > 200 for one in test.settled.values())
    partial, _ = run_test(changes, 30 - changes)
    assert [one.count < 50 for one in partial.settled.values()] == [True]
    assert partial.significant


def test_a_head_that_changes_nothing_is_settled_as_not_significant() -> None:
    test, _ = run_test(np.zeros((512, 2)), np.zeros((512, 2)))
    assert not test.live
    assert not test.significant
    assert {one.value for one in test.settled.values()} == {0.0}


# Tables


def test_settled_heads_stand_in_the_tables_with_their_estimates() -> None:
    changes, terms = population(np.random.default_rng(4), heads=4)
    test, _ = run_test(changes, terms)
    head, first = next(iter(test.settled.items()))
    rows = [
        Row("self", 0, h, name, 9.0, 8.0, 10.0, 512)
        for name in (LOSS, METRIC, "other")
        for h in range(4)
    ]
    result = {(row.statistic, row.head): row for row in test.rows(rows)}
    assert result["other", head.head].value == 9.0
    record = result[LOSS, head.head]
    assert (record.value, record.count) == (first.value, first.count)
    assert record.high - record.low == pytest.approx(2 * first.half_width)
    assert np.isnan(result[METRIC, head.head].value)  # a few examples hardly change it
    table = [
        {
            "stack": "self",
            "layer": 0,
            "head": h,
            "statistic": name,
            "p": 0.5,
            "test": "paired t",
            "settled_at": 512,
        }
        for name in (LOSS, METRIC)
        for h in range(4)
    ]
    tests = {(row["statistic"], row["head"]): row for row in test.significance(table)}
    assert tests[LOSS, head.head]["test"] == "sequential"
    assert tests[LOSS, head.head]["settled_at"] == first.count
    assert tests[LOSS, head.head]["p"] == first.p
    for name in (LOSS, METRIC):
        p_values = np.array([tests[name, h]["p"] for h in range(4)])
        adjusted = np.array([tests[name, h]["p_adjusted"] for h in range(4)])
        assert np.array_equal(holm(p_values), adjusted, equal_nan=True)
