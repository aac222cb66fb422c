"""The contract of estimates: one file each, found by its name, with scores for every head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import BertForSequenceClassification

from headscope.ablation import estimates
from headscope.ablation.agreement import of_items
from headscope.ablation.estimates import EstimateInputs, compute_estimate, cost_of
from headscope.config import names
from headscope.config.importance import ImportanceConfig
from headscope.statistics import glossary
from headscope.tasks import get_task
from worded import sentiments, table, worded


@pytest.fixture
def inputs(tmp_path: Path) -> EstimateInputs:
    model = worded(BertForSequenceClassification, num_labels=2)
    task = get_task("sst2")
    path = table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(12))
    prepared = task.prepare(model, task.items(path))
    return EstimateInputs(model, task, prepared, model.heads, ImportanceConfig(by="all"))


@pytest.mark.parametrize("name", names.ESTIMATES)
def test_every_estimate_keeps_the_contract(name: str, inputs: EstimateInputs) -> None:
    estimate = compute_estimate(name, inputs)
    assert estimate.heads == inputs.heads
    defined = estimates.definitions() | glossary()
    scores = [*estimate.importances]
    assert {row.statistic for row in estimate.rows} == set(scores) <= set(defined)
    assert set(scores[1:]) == set(names.VARIANTS.get(name, ()))
    for values in estimate.importances.values():
        assert np.isfinite(of_items(values, np.arange(12))).all()
    assert cost_of(name) >= 0


def test_the_columns_can_be_those_of_some_heads(inputs: EstimateInputs) -> None:
    estimate, items = compute_estimate("gradient", inputs), np.array([3, 5, 5])
    heads = inputs.heads[2:0:-1]
    for name, values in estimate.importances_of(heads).items():
        whole = of_items(estimate.importances[name], items)
        assert of_items(values, items) == pytest.approx(whole[[2, 1]])


def test_the_scores_that_pruning_goes_by_are_those_of_estimates() -> None:
    assert set(names.VARIANTS) <= set(names.ESTIMATES)
    assert {*names.SCORES.values()} == {*names.IMPORTANCES} - {"random"}
    assert all(score.startswith(estimate) for score, estimate in names.SCORES.items())


def test_a_file_is_an_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else lists estimates: a new file has its place behind the ones that are listed first."""
    folder = tmp_path / "ablation" / "estimates"
    folder.mkdir(parents=True)
    for name in ("norm", "attention_flow", "gradient", "_shared", "__init__"):
        (folder / f"{name}.py").touch()
    monkeypatch.setattr(names, "PACKAGE", tmp_path)
    listed = names._files_in("ablation/estimates", first=("gradient", "norm"))
    assert listed == ("gradient", "norm", "attention-flow")
