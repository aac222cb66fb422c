"""Do 95 % intervals hold the true value 95 times of 100? Every kind of interval that tables print, by simulation.

Samples of a known truth are drawn with fixed seeds, and it is counted how often the interval holds the truth. The
approximations may cost two points at these sizes (30 texts, as the page asks for). On top comes the error of the
simulation itself, three standard errors of a binomial share. That the check can fail is shown by the intervals it is
meant to keep out: Wald's and the bootstrap's of a share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from headscope.ablation.significance import (
    delta_of_losses,
    delta_of_metric,
    metrics_of,
    paired_share_interval,
    resamples,
    students_interval,
)
from headscope.model.latency import median_interval
from headscope.statistics.resampling import ResampledSums, bootstrap_share_interval, interval
from headscope.study.lens_agreement import _correlation
from headscope.tables import Moments
from headscope.tasks import Judged
from headscope.tasks.similarity import Similarity
from toys import Means

Array = NDArray[np.float64]
Ends = tuple[Array, Array]
TEXTS = 30
ALLOWED = 0.93  # the least coverage that is asked for: the nominal 0.95 less what the approximations may cost
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.95, 0.98, 0.99)


def coverage(ends: Ends, truth: float) -> float:
    low, high = (np.asarray(end) for end in ends)
    return float(((low <= truth) & (truth <= high)).mean())


def error(trials: int) -> float:
    """Three standard errors of a coverage counted in so many trials."""
    return float(3 * np.sqrt(ALLOWED * (1 - ALLOWED) / trials))


def moments(values: Array) -> Moments:
    """values [text, trial]"""
    result = Moments(values.shape[1:])
    result.add(values)
    return result


# Numbers of single texts


def zero_or_one(share: float, trials: int = 4000) -> Moments:
    return moments((np.random.default_rng(0).random((TEXTS, trials)) < share).astype(float))


def test_a_share_of_texts_is_held() -> None:
    """Wilson's interval swings about 0.95 as the share changes. Its mean must hold, and no share may be far off."""
    result = np.array(
        [coverage(zero_or_one(share).interval(is_share=True), share) for share in SHARES]
    )
    assert result.mean() >= 0.95 - error(4000 * len(SHARES))
    assert result.min() >= 0.91 - error(4000), dict(zip(SHARES, result, strict=True))


def test_wald_would_fail() -> None:
    result = np.array([coverage(zero_or_one(share).interval(), share) for share in SHARES])
    assert result.mean() < 0.80
    assert result.min() < 0.30, (
        "with a true share of 0.01 most samples have none, and the interval is [0, 0]"
    )


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_no_share_of_texts_is_ever_certain(share: float) -> None:
    low, high = zero_or_one(share).interval(is_share=True)
    assert (high - low > 0.1).all()
    assert (low >= 0).all()
    assert (high <= 1).all()


BOUNDED: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "beta": lambda chance, shape: chance.beta(2, 5, shape),
    "near 1": lambda chance, shape: chance.beta(40, 1, shape),
    "mostly 0": lambda chance, shape: chance.random(shape) * (chance.random(shape) < 0.3),
    "0, 1 and ties": lambda chance, shape: chance.choice(
        [0.0, 0.5, 1.0], shape, p=[0.85, 0.05, 0.1]
    ),
}
MEANS = {"beta": 2 / 7, "near 1": 40 / 41, "mostly 0": 0.15, "0, 1 and ties": 0.125}


@pytest.mark.parametrize("name", BOUNDED)
def test_the_mean_of_shares_is_held(name: str) -> None:
    result = moments(BOUNDED[name](np.random.default_rng(1), (TEXTS, 4000))).interval(is_share=True)
    assert coverage(result, MEANS[name]) >= ALLOWED - error(4000)
    assert (result[0] >= 0).all()
    assert (result[1] <= 1).all()


@pytest.mark.parametrize("name", ["normal", "gamma"])
def test_the_mean_of_numbers_is_held(name: str) -> None:
    chance = np.random.default_rng(2)
    values = (
        chance.normal(3.0, 1.0, (TEXTS, 4000))
        if name == "normal"
        else chance.gamma(3.0, 1.0, (TEXTS, 4000))
    )
    assert coverage(moments(values).interval(), 3.0) >= ALLOWED - error(4000)


# Shares of right answers, resampled by sentence or document


def answers(share: float, trials: int = 1500) -> tuple[Array, float, Array, Array]:
    """Credit and count, summed and in each replicate: 45 sentences of 1 to 3 answers, which are alike."""
    chance = np.random.default_rng(3)
    sizes = chance.integers(1, 4, 45)
    # Each sentence has its own share of right answers; one in three is all right or all wrong.
    of_sentence = np.where(
        chance.random((45, trials)) < 1 / 3, chance.random((45, trials)) < share, share
    )
    right = chance.binomial(sizes[:, None], of_sentence).astype(float)
    sums = ResampledSums((trials + 1,))
    sums.add(
        chance.integers(0, 2**63, 45).tolist(), np.concatenate([right, sizes[:, None]], axis=1)
    )
    return sums.total[:-1], float(sums.total[-1]), sums.replicates[:, :-1], sums.replicates[:, -1]


RESAMPLED = (0.03, 0.1, 0.3, 0.6, 0.9, 0.97, 0.99)


def test_a_resampled_share_is_held() -> None:
    actual = [coverage(bootstrap_share_interval(*answers(share)), share) for share in RESAMPLED]
    assert min(actual) >= 0.91 - error(1500), dict(zip(RESAMPLED, actual, strict=True))
    assert np.mean(actual) >= ALLOWED - error(1500 * len(RESAMPLED))


def test_the_bootstrap_alone_would_fail() -> None:
    _, _, credit, count = answers(0.99)
    assert coverage(interval(credit / count[:, None]), 0.99) < 0.75


def test_right_answers_alone_are_not_certain() -> None:
    """Twelve right answers of twelve, in twelve sentences, and in four."""
    lows = []
    for sentences, each in ((12, 1), (4, 3)):
        drawn = each * np.random.default_rng(0).poisson(1.0, (500, sentences)).sum(axis=1).astype(
            float
        )
        low, high = bootstrap_share_interval(np.array(12.0), 12.0, drawn, drawn)
        assert high == 1.0
        lows.append(float(low))
    assert 0.45 < lows[1] < 0.6 < lows[0] < 0.9


# Changes, paired by example

CELLS = [
    (0.005, 0.005),
    (0.02, 0.002),
    (0.02, 0.02),
    (0.05, 0.02),
    (0.15, 0.05),
    (0.3, 0.3),
]  # P(worse), P(better)


def changed(worse: float, better: float, trials: int = 3000) -> NDArray[np.int64]:
    """[trial, 2]: how many of 60 examples become worse, and better."""
    return np.random.default_rng(4).multinomial(60, [worse, better, 1 - worse - better], trials)[
        :, :2
    ]


@pytest.mark.parametrize("cells", CELLS)
def test_a_change_of_accuracy_is_held(cells: tuple[float, float]) -> None:
    result = np.array(
        [paired_share_interval(int(worse), int(better), 60) for worse, better in changed(*cells)]
    ).T
    assert coverage((result[0], result[1]), cells[1] - cells[0]) >= ALLOWED - error(3000)


def test_wald_on_paired_answers_would_fail() -> None:
    worse, better = changed(0.02, 0.002).T
    value = (better - worse) / 60
    half = 1.96 * np.sqrt(((worse + better) / 60 - value**2) / 59)
    assert coverage((value - half, value + half), -0.018) < ALLOWED - error(3000)


def test_examples_that_do_not_change_are_no_proof_that_none_does() -> None:
    low, high = paired_share_interval(0, 0, 60)
    assert low == -high
    assert 0.03 < high < 0.08


def test_a_change_of_loss_is_held() -> None:
    chance = np.random.default_rng(5)
    intact = chance.gamma(2.0, 1.0, (1500, 60))
    after = intact + 0.1 + 0.5 * chance.gamma(2.0, 1.0, (1500, 60)) - 1.0
    deltas = [delta_of_losses(*pair) for pair in zip(intact, after, strict=True)]
    ends = np.array([one.low for one in deltas]), np.array([one.high for one in deltas])
    assert coverage(ends, 0.1) >= ALLOWED - error(1500)


def few_changes(count: int, trials: int = 3000) -> NDArray[np.float64]:
    """[trial, example]: normal changes of the loss, 0.1 on average."""
    return np.random.default_rng(11).normal(0.1, 1.0, (trials, count))


@pytest.mark.parametrize("count", [4, 8, 24])
def test_a_change_of_loss_on_few_examples_is_held(count: int) -> None:
    """Student's quantile needs no minimum number of examples."""
    deltas = [delta_of_losses(np.zeros(count), changes) for changes in few_changes(count)]
    ends = np.array([one.low for one in deltas]), np.array([one.high for one in deltas])
    assert coverage(ends, 0.1) >= 0.95 - error(3000)


@pytest.mark.parametrize("count", [4, 8])
def test_the_normal_quantile_would_fail_on_few_examples(count: int) -> None:
    assert coverage(moments(few_changes(count).T).interval(), 0.1) < ALLOWED - error(3000)


# Metrics that are no mean, with the standard error over resamples


class Positives(Means):
    """F1 of labels that are 0 or 1; scores [item, predicted and true]."""

    metrics = ("f1",)
    mean_column = None

    def measure(self, scores: Array) -> dict[str, float]:
        predicted, true = scores.T
        return {"f1": float(2 * (predicted @ true) / (predicted.sum() + true.sum()))}


def judged(chance: np.random.Generator, right: float, count: int = 120) -> Array:
    """Both labels equally frequent, and as often wrong: the true F1 is the share of right answers."""
    true = chance.integers(0, 2, count)
    return np.stack([np.where(chance.random(count) < right, true, 1 - true), true], axis=1).astype(
        float
    )


def test_a_metric_by_resampling_is_held() -> None:
    chance = np.random.default_rng(6)
    actual = [
        metrics_of(Positives(), Judged(np.zeros(120), judged(chance, 0.8)))["f1"]
        for _ in range(400)
    ]
    low, high = (np.array([one[name] for one in actual], dtype=float) for name in ("low", "high"))
    assert coverage((low, high), 0.8) >= ALLOWED - error(400)


def test_a_change_of_such_a_metric_is_held() -> None:
    chance = np.random.default_rng(7)
    draws, deltas = resamples(120, 0), []
    for _ in range(400):
        before = judged(chance, 0.8)
        after = before.copy()
        after[:, 0] = np.where(chance.random(120) < 0.1, 1 - before[:, 0], before[:, 0])
        deltas.append(delta_of_metric(Positives(), before, after, draws))
    ends = np.array([one.low for one in deltas]), np.array([one.high for one in deltas])
    assert coverage(ends, 0.8 * 0.9 + 0.2 * 0.1 - 0.8) >= ALLOWED - error(400)


def test_a_small_change_of_an_order_is_held_on_few_examples() -> None:
    """24 cosines that move away from the scores by 2 %: in some samples no two change places."""

    def drawn(count: int) -> tuple[Array, Array]:
        gold = chance.random(count)
        cosines = gold + 0.3 * chance.normal(size=count)
        after = cosines + 0.02 * (cosines - gold)
        return np.stack([cosines, gold], axis=1), np.stack([after, gold], axis=1)

    chance, task = np.random.default_rng(12), Similarity("stsb")
    before, after = (task.measure(one)["spearman"] for one in drawn(200_000))
    draws = resamples(24, 0, 40)
    deltas = [delta_of_metric(task, *drawn(24), draws) for _ in range(60)]
    low, high = (np.array([getattr(one, end) for one in deltas]) for end in ("low", "high"))
    assert (high > low).all()
    assert sum(one.value == 0 for one in deltas) >= 5, "samples in which no two change places"
    assert coverage((low, high), after - before) >= ALLOWED - error(60)


# Few seeds, medians of turns, and correlations over heads


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_mean_over_seeds_is_held(seeds: int) -> None:
    result = np.array(
        [students_interval(one) for one in np.random.default_rng(8).normal(2.0, 1.0, (2000, seeds))]
    ).T
    assert coverage((result[0], result[1]), 2.0) >= 0.95 - error(2000)


@pytest.mark.parametrize("turns", [7, 20, 30])
def test_the_median_of_turns_is_held(turns: int) -> None:
    result = np.array(
        [median_interval(one) for one in np.random.default_rng(9).gamma(2.0, 1.0, (2000, turns))]
    ).T
    truth = float(np.median(np.random.default_rng(10).gamma(2.0, 1.0, 10**6)))
    assert coverage((result[1], result[2]), truth) >= 0.95 - error(2000)


def test_a_rank_correlation_over_heads_is_held() -> None:
    chance = np.random.default_rng(11)
    both = chance.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], (40, 72))
    truth = 6 / np.pi * np.arcsin(0.3)  # Spearman's of a normal distribution with Pearson's 0.6
    actual = [_correlation(one[:, 0], one[:, 1], 0) for one in both]
    ends = np.array([one["low"] for one in actual]), np.array([one["high"] for one in actual])
    assert coverage(ends, truth) >= ALLOWED - error(40)
