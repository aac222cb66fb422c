"""Texts with a label."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import alone, judged, log_softmax
from sklearn.metrics import f1_score, matthews_corrcoef
from transformers import BertForSequenceClassification, BertModel

from headscope.errors import HeadscopeError
from headscope.tasks import Item, get_task
from headscope.tasks.classification import FORMS
from headscope.tasks.inference import answers, evaluate
from worded import PLAIN, sentence, sentiments, table, worded

CHANCE = random.Random(0)
PAIRS = [
    (sentence(CHANCE), sentence(CHANCE), CHANCE.choice(FORMS["mnli"].labels)) for _ in range(14)
]


def test_every_form_reads_its_own_columns(tmp_path: Path) -> None:
    for name, form in FORMS.items():
        names = [columns[0] for columns in (form.first, form.second, form.label) if columns]
        labels = form.labels or ("no", "yes")
        rows = [[f"text {i} {column}" for column in names[:-1]] + [labels[i]] for i in range(2)]
        items = get_task(name).items(table(tmp_path / f"{name}.tsv", names, rows))
        assert [(*item.texts, item.target) for item in items] == [tuple(row) for row in rows], name


def test_columns_and_labels_may_be_called_otherwise(tmp_path: Path) -> None:
    path = table(
        tmp_path / "own.csv",
        ("x", "y", "gold"),
        [("a cat", "a dog", "e"), ("it ran", "it sat", "neutral")],
    )
    task = get_task(
        "mnli",
        columns={"premise": "x", "hypothesis": "y", "label": "gold"},
        labels={"e": "entailment"},
    )
    assert [(item.texts, item.target) for item in task.items(path)] == [
        (("a cat", "a dog"), "entailment"),
        (("it ran", "it sat"), "neutral"),
    ]


def test_labels_may_go_by_their_names_and_those_nobody_knows_are_left_out(tmp_path: Path) -> None:
    table(
        tmp_path / "dev.tsv",
        ("sentence", "label"),
        [("good", "positive"), ("bad", "negative"), ("fine", "1")],
    )
    assert [item.target for item in get_task("sst2").items(tmp_path / "dev.tsv")] == [
        "1",
        "0",
        "1",
    ]
    rows = [("a", "b", "entailment"), ("c", "d", "-"), ("e", "f", "-1"), ("g", "h", "neutral")]
    table(tmp_path / "nli.tsv", ("premise", "hypothesis", "label"), rows)
    assert [item.texts[0] for item in get_task("snli").items(tmp_path / "nli.tsv")] == ["a", "g"]


def test_a_limit_is_spread_evenly_over_the_file(tmp_path: Path) -> None:
    path = table(
        tmp_path / "dev.tsv", ("sentence", "label"), [(f"text {i}", i % 2) for i in range(10)]
    )
    items = get_task("sst2").items(path, limit=4)
    assert [item.texts[0] for item in items] == ["text 0", "text 2", "text 5", "text 7"]


def test_losses_and_scores_are_those_of_each_pair_alone(tmp_path: Path) -> None:
    model = worded(BertForSequenceClassification, num_labels=3)
    task = get_task("mnli")
    items = task.items(table(tmp_path / "dev.tsv", ("premise", "hypothesis", "label"), PAIRS))
    prepared, result = judged(model, task, items)
    right = 0
    for i, (premise, hypothesis, label) in enumerate(PAIRS):
        logits = alone(model, premise, hypothesis).logits[0].tolist()  # type: ignore[attr-defined]
        target = FORMS["mnli"].labels.index(label)
        predicted = logits.index(max(logits))
        assert result.losses[i] == pytest.approx(-log_softmax(logits, target), abs=1e-5)
        assert result.scores[i].tolist() == [predicted == target, predicted, target]
        right += predicted == target
    assert 0 < right < len(PAIRS)
    assert task.measure(result.scores)["accuracy"] == right / len(PAIRS)
    assert prepared.counts.used == len(PAIRS)


def test_batches_change_nothing(tmp_path: Path) -> None:
    model, task = worded(BertForSequenceClassification, num_labels=3), get_task("mnli")
    items = task.items(table(tmp_path / "dev.tsv", ("premise", "hypothesis", "label"), PAIRS))
    single, many = (judged(model, task, items, batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-5
    assert np.array_equal(single.scores, many.scores)


def test_a_model_s_own_names_of_classes_win_over_the_order_of_the_data_set() -> None:
    model, task = worded(BertForSequenceClassification, num_labels=3), get_task("mnli")
    model.model.config.label2id = {"CONTRADICTION": 0, "ENTAILMENT": 1, "NEUTRAL": 2}
    items = [
        Item(("the cat", "a dog"), label) for label in ("entailment", "neutral", "contradiction")
    ]
    assert task.prepare(model, items).targets.tolist() == [1, 2, 0]


@pytest.mark.parametrize("labels", [("2", "10", "0"), ("LABEL_2", "LABEL_10", "LABEL_0")])
def test_unnamed_classes_are_matched_by_number(labels: tuple[str, ...]) -> None:
    """Alphabetically "10" would come before "2". Not every class has to occur in the data."""
    model = worded(BertForSequenceClassification, num_labels=12)
    items = [Item(("the cat",), label) for label in labels]
    assert get_task("classification").prepare(model, items).targets.tolist() == [2, 10, 0]


def test_numbers_that_are_not_indices_are_ordered_by_value() -> None:
    model = worded(BertForSequenceClassification, num_labels=11)
    items = [Item(("the cat",), str(number)) for number in range(11, 0, -1)]
    assert get_task("classification").prepare(model, items).targets.tolist() == [*range(10, -1, -1)]


def test_unnamed_classes_must_match_other_labels_in_number() -> None:
    model = worded(BertForSequenceClassification, num_labels=3)
    items = [Item(("the cat",), "yes"), Item(("a dog",), "no")]
    with pytest.raises(HeadscopeError, match="must have as many as the 2 labels of the data"):
        get_task("classification").prepare(model, items)


@pytest.mark.parametrize("classes", [2, 3])
def test_matthews_and_f1_are_sklearn_s(classes: int) -> None:
    chance = np.random.default_rng(classes)
    task = get_task("cola" if classes == 2 else "mnli")
    predicted, right = chance.integers(0, classes, size=(2, 200)).astype(float)
    result = task.measure(np.stack([predicted == right, predicted, right], axis=1))
    assert result["matthews"] == pytest.approx(matthews_corrcoef(right, predicted))
    assert result["accuracy"] == pytest.approx(np.mean(predicted == right))
    if classes == 2:
        assert result["f1"] == pytest.approx(f1_score(right, predicted))
    else:
        assert "f1" not in result  # of one class among three it would say nothing of the whole


def test_a_metric_is_undefined_where_one_side_is_constant() -> None:
    same = np.zeros(4)
    table = np.stack([same, same, np.array([0.0, 1.0, 0.0, 1.0])], axis=1)
    assert np.isnan(get_task("cola").measure(table)["matthews"])
    assert get_task("mrpc").measure(table)["f1"] == 0
    assert np.isnan(get_task("mrpc").measure(np.zeros((4, 3)))["f1"])


def test_the_first_metric_is_the_data_set_s_own() -> None:
    assert [get_task(name).metrics[0] for name in ("mnli", "cola", "mrpc", "qqp", "sst2")] == [
        "accuracy",
        "matthews",
        "f1",
        "f1",
        "accuracy",
    ]


def test_f1_is_that_of_the_label_1_whatever_its_place_in_the_model() -> None:
    model = worded(BertForSequenceClassification, seed=1, num_labels=2)
    model.model.config.label2id, model.model.config.id2label = {"1": 0, "0": 1}, {0: "1", 1: "0"}
    task = get_task("mrpc")
    chance = random.Random(1)
    items = [Item((sentence(chance), sentence(chance)), str(i % 2), f"x:{i}") for i in range(20)]
    _, result = judged(model, task, items)
    messages = []
    for item in items:
        logits = alone(model, *item.texts).logits[0].tolist()  # type: ignore[attr-defined]
        messages.append(1 if logits[0] > logits[1] else 0)
    right = [int(item.target) for item in items]
    assert 0 < sum(messages) < len(messages)
    assert task.measure(result.scores)["f1"] == pytest.approx(f1_score(right, messages))


def test_without_labels_the_targets_are_what_the_model_says(tmp_path: Path) -> None:
    model, task = worded(BertForSequenceClassification, num_labels=2), get_task("sst2")
    items = task.items(table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(12)))
    prepared = task.prepare(model, items)
    predicted = answers(model, task, prepared)
    assert task.with_predicted_labels(predicted, prepared).targets.tolist() == [
        row.index(max(row)) for row in predicted.tolist()
    ]


def test_texts_that_become_no_tokens_are_left_out_and_counted() -> None:
    model, task = worded(BertForSequenceClassification, num_labels=2), get_task("sst2")
    items = [
        Item((text,), str(i % 2), f"x:{i}")
        for i, text in enumerate((PLAIN[0], "\u2003", PLAIN[1], PLAIN[2]))
    ]
    prepared = task.prepare(model, items)
    assert [item.texts[0] for item in prepared.items] == list(PLAIN[:3])
    assert prepared.targets.tolist() == [0, 0, 1]
    assert prepared.counts.skipped == {"no tokens": 1}
    assert prepared.is_one_to_one


def test_a_bare_model_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertModel has no classifier"):
        get_task("sst2").check(worded(BertModel))


@pytest.mark.parametrize(("bias", "count"), [(-torch.inf, 1), (torch.nan, 2)])
def test_losses_that_are_not_finite_are_refused_with_the_example(
    tmp_path: Path, bias: float, count: int
) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    path = table(tmp_path / "dev.tsv", ("text", "label"), [("a cat", "no"), ("a dog", "yes")])
    task = get_task("classification")
    prepared = task.prepare(model, task.items(path))
    with torch.no_grad():
        model.model.classifier.bias[0] = bias
    with pytest.raises(HeadscopeError) as error:
        evaluate(model, task, prepared)
    assert str(error.value) == (
        f"{path}:2: the loss of {count} of 2 examples is not finite. "
        "Load the model with dtype float32, or leave these examples out."
    )
