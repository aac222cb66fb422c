"""A classifier whose label is carried by one head, built by hand: every importance must find that head, and only it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from carrier import CARRIER, HEADS, classifier, examples, scale_values

from headscope.api.importance import importance
from headscope.heads import Head
from headscope.study.study import Study

GRADIENTS = (
    "gradient",
    "gradient-absolute",
    "gradient-tokens",
    "gradient-fisher",
    "gradient-second",
    "gradient-batch",
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    data = examples(tmp_path_factory.mktemp("planted"))
    return importance(classifier(), task="sst2", data=data, by="ablation,gradient")


def values(heads: pd.DataFrame, statistic: str) -> dict[str, float]:
    rows = heads[heads["statistic"] == statistic]
    return {f"{row.layer}.{row.head}": row.value for row in rows.itertuples()}


def test_the_planted_classifier_is_good_at_its_task(study: Study) -> None:
    assert study.record["importance"]["intact"]["accuracy"]["value"] > 0.95


@pytest.mark.parametrize("statistic", ["ablation-loss", "ablation-metric", *GRADIENTS])
def test_the_carrier_is_found_first_by_every_importance(study: Study, statistic: str) -> None:
    result = values(study.heads, statistic)
    assert len(result) == 2 * HEADS
    sign = -1 if statistic == "ablation-metric" else 1
    carrier = sign * result.pop(CARRIER)
    others = [sign * value for value in result.values()]
    assert carrier > 5 * max(abs(value) for value in others)
    if statistic != "ablation-metric":
        assert min(abs(value) for value in others) > 0  # they do something, only not for the task


def test_the_output_norm_grows_with_the_values_of_one_head_alone(tmp_path: Path) -> None:
    data = examples(tmp_path, 40)
    plain, loud = (
        values(importance(model, task="sst2", data=data, by="norm").heads, "output-norm")
        for model in (classifier(), scale_values(classifier(), "1.1", 100.0))
    )
    assert max(loud, key=loud.__getitem__) == "1.1"
    assert loud.pop("1.1") == pytest.approx(100 * plain.pop("1.1"), rel=1e-5)
    assert loud == pytest.approx(plain, rel=1e-5)


def test_without_the_carrier_the_model_guesses(study: Study) -> None:
    intact = study.record["importance"]["intact"]["accuracy"]["value"]
    assert values(study.heads, "ablation-metric")[CARRIER] == pytest.approx(0.5 - intact, abs=0.2)


@pytest.mark.parametrize("statistic", ["ablation-loss", "ablation-metric"])
def test_the_carrier_alone_is_significant(study: Study, statistic: str) -> None:
    tests = study.tables["significance"]
    tests = tests[tests["statistic"] == statistic]
    starred = {f"{row.layer}.{row.head}" for row in tests[tests["is_significant"]].itertuples()}
    assert starred == {CARRIER}
    assert (tests["count"] == 200).all()


def test_a_silent_head_changes_exactly_nothing_and_has_no_gradient(tmp_path: Path) -> None:
    model = classifier()
    with torch.no_grad():
        model.model.bert.encoder.layer[0].attention.output.dense.weight[:, 12:24] = 0.0
    result = importance(model, task="sst2", data=examples(tmp_path, 40), by="ablation,gradient")
    for statistic in ("ablation-loss", "ablation-metric", *GRADIENTS):
        assert values(result.heads, statistic)["0.1"] == 0.0, statistic
    tests = result.tables["significance"]
    silent = tests[(tests["layer"] == 0) & (tests["head"] == 1)]
    assert (silent["p"] == 1.0).all()
    assert not silent["is_significant"].any()


def test_a_head_that_is_split_into_duplicates_has_two_halves_of_its_terms(tmp_path: Path) -> None:
    """To the last bit: halving is exact, and nothing else in the planted layer is."""
    from headscope.ablation.estimates.gradient import gradient_terms
    from headscope.tasks import get_task

    task = get_task("sst2")
    items = task.items(examples(tmp_path, 40))
    actual = []
    for model in (classifier(noise=0.0), classifier(noise=0.0, duplicate="1.0")):
        actual.append(gradient_terms(model, task, task.prepare(model, items)))
    first, other = Head("encoder", 1, 2), Head("encoder", 1, 0)
    whole = actual[0].signed[:, actual[0].heads.index(first)]
    assert np.abs(whole).min() > 1e-4
    for head in (first, other):
        assert np.array_equal(actual[1].signed[:, actual[1].heads.index(head)], whole / 2)
    halves = (
        actual[0].importances()["gradient-fisher"].mean(axis=0),
        actual[1].importances()["gradient-fisher"].mean(axis=0),
    )
    assert halves[1][actual[1].heads.index(first)] == halves[0][actual[0].heads.index(first)] / 4


def test_of_duplicate_heads_each_alone_costs_less_than_both(tmp_path: Path) -> None:
    """Exact removal sees what a first look cannot: one of them does for both."""
    model = classifier(noise=0.0, duplicate="1.0")
    result = importance(
        model,
        task="sst2",
        data=examples(tmp_path, 80),
        by="ablation",
        kind="head,pair",
        heads="1.0,1.2",
    )
    single = values(result.heads, "ablation-loss")
    pair = result.tables["ablations"].iloc[0]
    assert single["1.0"] == pytest.approx(single["1.2"], abs=1e-6)
    assert pair["named"] == "encoder.1.0+encoder.1.2"
    assert pair["loss_value"] > 2.2 * single["1.0"] > 0


def test_heads_select_single_heads_and_pairs_and_leave_whole_layers_alone(tmp_path: Path) -> None:
    options = {"task": "sst2", "data": examples(tmp_path, 16), "by": "ablation"}
    model = classifier(noise=0.0)
    rows = importance(model, kind="pair,layer", heads="1.0,1.2", **options).tables["ablations"]
    layers = importance(model, kind="layer", **options).tables["ablations"]
    assert list(rows[rows["kind"] == "pair"]["named"]) == ["encoder.1.0+encoder.1.2"]
    ours = rows[rows["kind"] == "layer"].set_index("named")["loss_value"]
    assert ours.to_dict() == pytest.approx(
        layers.set_index("named")["loss_value"].to_dict(), abs=1e-9
    )
