"""Tests of significance: against other people's formulas, and that chance is called chance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headscope.ablation.significance import delta_of_losses, delta_of_metric, holm, resamples
from headscope.tasks import get_task
from headscope.tasks.classification import Classification
from headscope.tasks.similarity import Similarity
from toys import Means


def test_a_change_of_loss_is_tested_by_the_paired_t_test() -> None:
    chance = np.random.default_rng(0)
    intact, changed = chance.normal(size=50), chance.normal(size=50) + 0.3
    result = delta_of_losses(intact, changed)
    assert result.p == pytest.approx(stats.ttest_rel(changed, intact).pvalue, rel=1e-9)
    assert result.value == pytest.approx((changed - intact).mean())
    assert result.high - result.value == pytest.approx(
        stats.t.ppf(0.975, 49) * stats.sem(changed - intact)
    )


@pytest.mark.parametrize("count", [2, 3, 5, 24, 500])
@pytest.mark.parametrize("ratio", [-1.01, -0.99, 0.0, 0.99, 1.01])
def test_interval_and_p_of_a_mean_change_agree(count: int, ratio: float) -> None:
    """p is below 0.05 exactly if the interval excludes 0, for losses and for metrics that are a mean."""
    spread = np.random.default_rng(count).normal(size=count)
    spread -= spread.mean()
    spread *= 0.1 / (stats.t.ppf(0.975, count - 1) * stats.sem(spread))
    changed = 0.5 + 0.1 * ratio + spread  # the mean change is `ratio` times the half-width
    for match in (
        delta_of_losses(np.full(count, 0.5), changed),
        delta_of_metric(Means(), np.full((count, 1), 0.5), changed[:, None]),
    ):
        assert match.high - match.low == pytest.approx(0.2)
        assert (match.low > 0 or match.high < 0) == (match.p < 0.05) == (abs(ratio) > 1)
        assert match.p == pytest.approx(stats.ttest_1samp(changed - 0.5, 0).pvalue, rel=1e-6)


def test_a_change_of_accuracy_is_tested_by_mcnemar() -> None:
    intact = np.array([[1.0]] * 30 + [[0.0]] * 20)
    changed = intact.copy()
    changed[:9] = 0  # nine become wrong, two right
    changed[30:32] = 1
    result = delta_of_metric(Means(), intact, changed)
    assert result.test == "McNemar"
    assert result.value == pytest.approx(-7 / 50)
    below = sum(stats.binom.pmf(k, 11, 0.5) for k in range(3))
    assert result.p == pytest.approx(2 * below)


def test_a_change_of_accuracy_is_never_certain() -> None:
    """Bonett and Price: one answer more that became worse, and one that became better."""
    scores = np.array([[1.0]] * 30 + [[0.0]] * 20)
    same = delta_of_metric(Means(), scores, scores.copy())
    half = 1.96 * np.sqrt((2 / 52) / 52)
    assert (same.value, same.low, same.high, same.p) == (
        0,
        pytest.approx(-half),
        pytest.approx(half),
        1,
    )
    worse = scores.copy()
    worse[:9] = 0
    result = delta_of_metric(Means(), scores, worse)
    down, up = 10 / 52, 1 / 52
    half = 1.96 * np.sqrt((down + up - (up - down) ** 2) / 52)
    assert (result.low, result.high) == pytest.approx((up - down - half, up - down + half))


def test_equal_losses_are_no_change() -> None:
    losses = np.ones(20)
    assert delta_of_losses(losses, losses).p == 1


def test_shares_that_do_not_change_are_not_certain() -> None:
    scores = np.random.default_rng(0).random((50, 1))
    same = delta_of_metric(Means(), scores, scores.copy())
    half = 1.96 * np.sqrt((2 / 52) / 52)
    assert (same.value, same.low, same.high, same.p) == (
        0,
        pytest.approx(-half),
        pytest.approx(half),
        1,
    )


def swaps(scores: NDArray) -> list[float]:
    """By hand: how Spearman's correlation changes if two neighbours in the order of the cosines change places."""
    order, actual = sorted(range(len(scores)), key=lambda i: scores[i, 0]), []
    for first, second in pairwise(order):
        after = scores.copy()
        after[[first, second], 0] = after[[second, first], 0]
        actual.append(stats.spearmanr(*after.T).statistic - stats.spearmanr(*scores.T).statistic)
    return actual


@pytest.mark.parametrize("step", [0.0, 1e-9])
def test_an_order_that_does_not_change_is_not_certain(step: float) -> None:
    """24 cosines of which no two change places, as for a head that does little: one swap more in either direction."""
    chance = np.random.default_rng(3)
    gold = chance.integers(0, 11, 24) / 2  # with ties
    intact = np.stack([gold / 5 + 0.2 * chance.normal(size=24), gold], axis=1)
    changed = intact + np.array([step, 0.0])
    result = delta_of_metric(Similarity("stsb"), intact, changed, resamples(24, 0))
    half = 1.96 * np.sqrt(2 * np.mean(np.square(swaps(intact))))
    assert (result.value, result.low, result.high, result.p) == (
        0,
        pytest.approx(-half),
        pytest.approx(half),
        1,
    )
    assert 0.002 < half < 0.05


@pytest.mark.parametrize("name", ["mrpc", "cola"])
@pytest.mark.parametrize("right", [12, 24])
def test_predictions_that_do_not_change_are_not_certain(name: str, right: int) -> None:
    """As for an accuracy: one prediction more that becomes better and one that becomes worse."""
    task, gold = Classification(name), np.tile([0.0, 1.0, 1.0], 8)
    predicted = np.where(np.arange(24) < right, gold, 1 - gold)
    scores = np.stack([predicted == gold, predicted, gold], axis=1)
    flips = []
    for i in range(24):
        after = scores.copy()
        after[i, 1] = 1 - after[i, 1]
        flips.append(task.measure(after)[task.metrics[0]] - task.measure(scores)[task.metrics[0]])
    half = 1.96 * np.sqrt(2 * np.mean(np.square(flips)))
    result = delta_of_metric(task, scores, scores.copy(), resamples(24, 0))
    assert (result.value, result.low, result.high, result.p) == (
        0,
        pytest.approx(-half),
        pytest.approx(half),
        1,
    )
    assert 0.05 < half < 0.4


def test_a_metric_of_another_task_changes_as_if_an_example_was_left_out() -> None:
    class Median(Means):
        mean_column = None

        def measure(self, scores: NDArray) -> dict[str, float]:
            return {"accuracy": float(np.median(scores))}

    scores = np.array([[1.0], [2.0], [4.0]]) / 10
    assert Median().change_of_one(scores) == pytest.approx(
        np.sqrt((1**2 + 0.5**2 + 0.5**2) / 3) / 10
    )
    result = delta_of_metric(Median(), scores[:2], scores[:2], resamples(2, 0))
    assert result.high == pytest.approx(1.96 * np.sqrt(2) * 0.05)
    assert np.isnan(delta_of_metric(Median(), scores[:1], scores[:1], resamples(1, 0)).high)


def test_one_prediction_of_a_task_on_tokens_is_one_token() -> None:
    """Texts differ far more than a head's removal changes: the floor must not hide a change of every text."""
    chance = np.random.default_rng(0)
    right = chance.normal(0.4, 0.08, size=40).round(3) * 512
    intact = np.stack([right, np.full(40, 512.0), np.ones(40)], axis=1)
    changed = intact.copy()
    changed[:, 0] -= chance.integers(0, 4, size=40)
    task = get_task("causal")
    after = intact.copy()
    after[0, 0] += 1
    single = task.measure(after)["accuracy"] - task.measure(intact)["accuracy"]
    same = delta_of_metric(task, intact, intact.copy(), resamples(40, 0))
    assert (same.low, same.high) == (
        pytest.approx(-1.96 * np.sqrt(2) * single),
        pytest.approx(1.96 * np.sqrt(2) * single),
    )
    result = delta_of_metric(task, intact, changed, resamples(40, 0))
    assert result.p == pytest.approx(stats.ttest_rel(changed[:, 0], intact[:, 0]).pvalue, abs=1e-3)
    assert result.high < 0


def test_an_interval_of_a_change_stays_within_what_is_possible() -> None:
    pairs = np.array([[0.1, 0.0], [0.2, 1.0], [0.3, 0.5]])
    result = delta_of_metric(Similarity("stsb"), pairs, pairs[:, [1, 1]], resamples(3, 0))
    assert -2 <= result.low < result.value < result.high == 2


def test_other_metrics_are_tested_by_a_paired_bootstrap() -> None:
    chance = np.random.default_rng(1)
    gold = chance.random(300)
    intact = np.stack([gold + 0.3 * chance.normal(size=300), gold], axis=1)
    worse = np.stack([gold + 1.5 * chance.normal(size=300), gold], axis=1)
    task, draws = Similarity("stsb"), resamples(300, 0)
    result = delta_of_metric(task, intact, worse, draws)
    by_hand = [
        task.measure(worse[d])["spearman"] - task.measure(intact[d])["spearman"] for d in draws
    ]
    assert result.test == "bootstrap"
    assert result.high - result.value == pytest.approx(1.96 * np.std(by_hand, ddof=1))
    assert result.p < 1e-6


def test_matthews_of_one_answer_to_all_has_no_interval() -> None:
    task = Classification("cola")
    right = np.array([0, 1] * 10)
    intact = np.stack([right == right, right, right], axis=1).astype(float)
    single = np.stack([right == 1, np.ones(20), right], axis=1).astype(float)
    result = delta_of_metric(task, intact, single, resamples(20, 0))
    assert np.isnan(result.value)
    assert np.isnan(result.p)


def test_holm_by_hand() -> None:
    adjusted = holm(np.array([0.01, 0.04, 0.03, np.nan, 0.005]))
    assert adjusted[[4, 0, 2, 1]] == pytest.approx([0.02, 0.03, 0.06, 0.06])
    assert np.isnan(adjusted[3])


def test_where_nothing_matters_holm_finds_something_in_about_five_of_a_hundred_runs() -> None:
    chance = np.random.default_rng(2)
    result = 0
    for _ in range(400):
        p_values = [delta_of_losses(np.zeros(60), chance.normal(size=60)).p for _ in range(20)]
        result += bool((holm(np.array(p_values)) < 0.05).any())
    assert 5 <= result <= 34  # 20 expected; beyond three standard errors of a binomial
