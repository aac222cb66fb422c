"""Tests of significance: against other people's formulas, and that chance is called chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.importances.significance import delta_of_losses, delta_of_metric, holm, resamples
from headscope.tasks.classification import Classification
from headscope.tasks.similarity import Similarity
from toys import Means


def test_a_change_of_loss_is_tested_by_the_paired_t_test() -> None:
    chance = np.random.default_rng(0)
    intact, changed = chance.normal(size=50), chance.normal(size=50) + 0.3
    found = delta_of_losses(intact, changed)
    assert found.p == pytest.approx(stats.ttest_rel(changed, intact).pvalue, rel=1e-9)
    assert found.value == pytest.approx((changed - intact).mean())
    assert found.high - found.value == pytest.approx(1.96 * stats.sem(changed - intact))


def test_a_change_of_accuracy_is_tested_by_mcnemar() -> None:
    intact = np.array([[1.0]] * 30 + [[0.0]] * 20)
    changed = intact.copy()
    changed[:9] = 0  # nine become wrong, two right
    changed[30:32] = 1
    found = delta_of_metric(Means(), intact, changed)
    assert found.test == "McNemar"
    assert found.value == pytest.approx(-7 / 50)
    below = sum(stats.binom.pmf(k, 11, 0.5) for k in range(3))
    assert found.p == pytest.approx(2 * below)


def test_a_change_of_accuracy_is_never_certain() -> None:
    """Bonett and Price: one answer more that became worse, and one that became better."""
    scores = np.array([[1.0]] * 30 + [[0.0]] * 20)
    same = delta_of_metric(Means(), scores, scores.copy())
    half = 1.96 * np.sqrt((2 / 52) / 52)
    assert (same.value, same.low, same.high, same.p) == (0, pytest.approx(-half), pytest.approx(half), 1)
    worse = scores.copy()
    worse[:9] = 0
    found = delta_of_metric(Means(), scores, worse)
    down, up = 10 / 52, 1 / 52
    half = 1.96 * np.sqrt((down + up - (up - down) ** 2) / 52)
    assert (found.low, found.high) == pytest.approx((up - down - half, up - down + half))


def test_nothing_changed_is_no_change_at_all() -> None:
    scores = np.random.default_rng(0).random((20, 2))
    same = delta_of_metric(Similarity("stsb"), scores, scores.copy(), resamples(20, 0))
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    losses = np.ones(20)
    assert delta_of_losses(losses, losses).p == 1


def test_other_metrics_are_tested_by_a_paired_bootstrap() -> None:
    chance = np.random.default_rng(1)
    gold = chance.random(300)
    intact = np.stack([gold + 0.3 * chance.normal(size=300), gold], axis=1)
    worse = np.stack([gold + 1.5 * chance.normal(size=300), gold], axis=1)
    task, draws = Similarity("stsb"), resamples(300, 0)
    found = delta_of_metric(task, intact, worse, draws)
    by_hand = [task.measure(worse[d])["spearman"] - task.measure(intact[d])["spearman"] for d in draws]
    assert found.test == "bootstrap"
    assert found.high - found.value == pytest.approx(1.96 * np.std(by_hand, ddof=1))
    assert found.p < 1e-6


def test_matthews_of_one_answer_to_all_has_no_interval() -> None:
    task = Classification("cola")
    right = np.array([0, 1] * 10)
    intact = np.stack([right == right, right, right], axis=1).astype(float)
    one = np.stack([right == 1, np.ones(20), right], axis=1).astype(float)
    found = delta_of_metric(task, intact, one, resamples(20, 0))
    assert np.isnan(found.value)
    assert np.isnan(found.p)


def test_holm_by_hand() -> None:
    adjusted = holm(np.array([0.01, 0.04, 0.03, np.nan, 0.005]))
    assert adjusted[[4, 0, 2, 1]] == pytest.approx([0.02, 0.03, 0.06, 0.06])
    assert np.isnan(adjusted[3])


def test_where_nothing_matters_holm_finds_something_in_about_five_of_a_hundred_runs() -> None:
    chance = np.random.default_rng(2)
    found = 0
    for _ in range(400):
        p_values = [delta_of_losses(np.zeros(60), chance.normal(size=60)).p for _ in range(20)]
        found += bool((holm(np.array(p_values)) < 0.05).any())
    assert 5 <= found <= 34  # 20 expected; beyond three standard errors of a binomial
