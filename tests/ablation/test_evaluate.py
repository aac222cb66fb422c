"""How good is a model at a task?"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from transformers import BertForSequenceClassification, BertModel

from headscope.ablation.significance import metrics_of
from headscope.api.evaluate import evaluate
from headscope.tasks import Judged, get_task, tasks
from headscope.tasks.metrics import BOUNDS
from reference.intervals import wilson
from worded import saved, sentiments, table, worded


def test_every_metric_has_its_interval(tmp_path: Path) -> None:
    data = table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(60))
    result = evaluate(
        worded(BertForSequenceClassification, seed=1, num_labels=2), task="sst2", data=data
    )
    assert (result["count"], result["task"], result["split"]) == (60, "sst2", "dev")
    assert list(result["metrics"]) == ["loss", "accuracy", "f1", "matthews"]
    for metric in result["metrics"].values():
        assert metric["low"] < metric["value"] < metric["high"]


def test_the_interval_of_a_mean_is_that_of_the_formula() -> None:
    losses = np.array([0.1, 0.4, 0.7, 0.2] * 3)
    right = np.array([1.0, 0.0, 1.0, 0.0] * 3)
    result = metrics_of(
        get_task("sst2"), Judged(losses, np.stack([right, right, np.ones(12)], axis=1))
    )
    mean = sum(losses) / 12
    half = 1.96 * math.sqrt(sum((value - mean) ** 2 for value in losses) / 11) / math.sqrt(12)
    assert result["loss"] == pytest.approx({"value": mean, "low": mean - half, "high": mean + half})
    low, high = wilson(0.5, 12)
    assert result["accuracy"] == pytest.approx({"value": 0.5, "low": low, "high": high})


@pytest.mark.parametrize("right", [0, 1, 19, 20])
def test_an_accuracy_has_wilson_s_interval(right: int) -> None:
    """20 of 20 right is not certainty, and 19 of 20 does not reach 1.048."""
    scores = np.repeat([1.0, 0.0], [right, 20 - right])
    result = metrics_of(
        get_task("sst2"), Judged(np.ones(20), np.stack([scores, scores, np.ones(20)], axis=1))
    )
    low, high = wilson(right / 20, 20)
    assert result["accuracy"] == pytest.approx({"value": right / 20, "low": low, "high": high})
    assert high - low > 0.1


def test_a_metric_that_no_resample_changes_is_not_certain() -> None:
    right = np.array([0.0, 1.0] * 10)
    result = metrics_of(
        get_task("sst2"), Judged(np.zeros(20), np.stack([right == right, right, right], axis=1))
    )
    assert result["f1"]["value"] == 1.0
    assert result["f1"]["low"] == pytest.approx(wilson(1.0, 20)[0])
    assert result["f1"]["high"] == 1.0


def test_a_correlation_is_not_reported_above_one() -> None:
    steps = np.arange(12.0)
    scores = np.stack([steps, steps + np.where(steps == 3, 1.5, 0.0)], axis=1)
    result = metrics_of(get_task("stsb"), Judged(np.zeros(12), scores))
    for name in ("spearman", "pearson"):
        low, value, high = (result[name][end] for end in ("low", "value", "high"))
        assert low is not None
        assert value is not None
        assert high == 1.0
        assert 2 * value - low > 1.0, "the interval that is not cut off would reach beyond"


def test_every_metric_of_every_task_says_where_it_ends() -> None:
    for name in tasks():
        assert set(get_task(name).metrics) <= set(BOUNDS), name


def test_the_bootstrap_s_interval_of_a_correlation_is_near_fisher_s() -> None:
    chance = np.random.default_rng(0)
    single = chance.normal(size=400)
    scores = np.stack([single, 0.6 * single + 0.8 * chance.normal(size=400)], axis=1)
    result = metrics_of(get_task("stsb"), Judged(np.zeros(400), scores))["pearson"]
    value, low, high = result["value"], result["low"], result["high"]
    assert value is not None
    assert low is not None
    assert high is not None
    half = 1.96 * (1 - value**2) / math.sqrt(400)
    assert (high - low) / 2 == pytest.approx(half, rel=0.25)


def test_what_is_undefined_is_none() -> None:
    scores = np.stack([np.zeros(6), np.zeros(6), np.ones(6)], axis=1)
    result = metrics_of(get_task("cola"), Judged(np.arange(6.0), scores))
    assert result["matthews"] == {"value": None, "low": None, "high": None}
    single = metrics_of(get_task("sst2"), Judged(np.ones(1), np.ones((1, 3))))
    assert single["loss"] == {"value": 1.0, "low": None, "high": None}


def test_a_directory_is_loaded_with_the_class_the_task_needs(tmp_path: Path) -> None:
    saved(tmp_path / "classifier", BertForSequenceClassification, num_labels=2)
    rows = [(text, text + " ?", i % 6) for i, (text, _) in enumerate(sentiments(12))]
    data = table(tmp_path / "dev.tsv", ("sentence1", "sentence2", "score"), rows)
    seen: list[tuple[int, int]] = []
    result = evaluate(
        tmp_path / "classifier", task="stsb", data=data, progress=lambda *it: seen.append(it)
    )
    assert result["metrics"]["spearman"]["value"] is not None
    assert seen[-1] == (24, 24)
    live = worded(BertModel)
    assert evaluate(live, task="stsb", data=data)["metrics"]["loss"]["value"] == pytest.approx(
        evaluate(live, task="stsb", data=data, batch_size=1)["metrics"]["loss"]["value"]
    )
