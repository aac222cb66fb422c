"""The cosine of pooled vectors against a score."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from by_hand import alone, judged
from scipy.stats import pearsonr, spearmanr
from transformers import BertForMaskedLM, BertModel

from headscope.errors import HeadscopeError
from headscope.tasks import get_task
from worded import sentence, table, worded

CHANCE = random.Random(3)
ROWS = [(sentence(CHANCE), sentence(CHANCE), round(CHANCE.uniform(0, 5), 1)) for _ in range(15)]
NAMES = ("sentence1", "sentence2", "score")


def vector(model, text: str) -> list[float]:  # type: ignore[no-untyped-def]
    """The mean over the tokens of one text, of length 1."""
    states = alone(model, text)[0][0].tolist()  # type: ignore[index]
    mean = [sum(column) / len(states) for column in zip(*states, strict=True)]
    length = math.sqrt(sum(x * x for x in mean))
    return [x / length for x in mean]


def test_losses_and_correlations_are_those_written_out(tmp_path: Path) -> None:
    model, task = worded(BertModel), get_task("stsb")
    items = task.items(table(tmp_path / "stsb_dev.tsv", NAMES, ROWS))
    _, result = judged(model, task, items)
    cosines = []
    for i, (first, second, score) in enumerate(ROWS):
        cosine = sum(
            a * b for a, b in zip(vector(model, first), vector(model, second), strict=True)
        )
        cosines.append(cosine)
        assert result.losses[i] == pytest.approx((cosine - score / 5) ** 2, abs=1e-5)
        assert result.scores[i] == pytest.approx([cosine, score], abs=1e-5)
    scores = [row[2] for row in ROWS]
    metrics = task.measure(result.scores)
    assert metrics["spearman"] == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-6)
    assert metrics["pearson"] == pytest.approx(pearsonr(cosines, scores).statistic, abs=1e-4)
    assert abs(metrics["spearman"] - metrics["pearson"]) > 1e-3  # or the two could be one


def test_ties_are_ranked_as_scipy_does() -> None:
    chance = np.random.default_rng(0)
    table = chance.integers(0, 4, size=(60, 2)).astype(float)
    assert get_task("stsb").measure(table)["spearman"] == pytest.approx(
        spearmanr(*table.T).statistic
    )
    assert np.isnan(get_task("stsb").measure(np.ones((5, 2)))["spearman"])


def test_batches_change_nothing(tmp_path: Path) -> None:
    model, task = worded(BertModel), get_task("stsb")
    items = task.items(table(tmp_path / "stsb_dev.tsv", NAMES, ROWS))
    single, many = (judged(model, task, items, batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-5
    assert np.abs(single.scores - many.scores).max() < 1e-5


def test_a_model_with_a_head_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertForMaskedLM does not return token states"):
        get_task("stsb").check(worded(BertForMaskedLM))
