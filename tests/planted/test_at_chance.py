"""A model at chance level on its task is named as such before its heads are ranked; another one is not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from carrier import classifier, examples
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

from headscope import Run, search
from headscope.ablation.chance import chance_note
from headscope.ablation.significance import metrics_of
from headscope.api.importance import importance
from headscope.data.encode import Counts
from headscope.model.attention_model import AttentionModel
from headscope.report.sections import findings_of
from headscope.report.top_findings import select_top
from headscope.tasks import get_task
from headscope.tasks.base import Chance
from headscope.tasks.inference import evaluate
from headscope.tasks.items import Item
from headscope.tasks.prepared import Prepared
from worded import sentence, table, translator, worded

RANK = {"search": "rank", "by": "confidence"}


def untrained() -> AttentionModel:
    return worded(BertForSequenceClassification, num_labels=2)


def test_an_untrained_classifier_is_named_before_its_heads_are_ranked(tmp_path: Path) -> None:
    messages: list[str] = []
    study = importance(untrained(), task="sst2", data=examples(tmp_path, 60), log=messages.append)
    summary = study.record["importance"]["knows_nothing"]
    assert (
        messages.index(f"note: {summary}")
        == messages.index("unpruned model: accuracy 0.533 on 60 examples") + 1
    )
    assert summary.startswith("this model is at chance level on sst2 (accuracy 0.")
    first, _ = select_top([findings_of(study)])
    assert first[0].sentence == f"T{summary[1:]}"


def test_a_search_of_an_untrained_classifier_names_it_first(tmp_path: Path) -> None:
    messages: list[str] = []
    result = search(
        untrained(),
        task="sst2",
        data=examples(tmp_path, 80),
        remove=2,
        **RANK,
        run=Run(log=messages.append),
    )
    summary = result.study.record["pruning"]["knows_nothing"]
    ranked = next(number for number, line in enumerate(messages) if " removed: " in line)
    assert messages.index(f"note: {summary}") < ranked
    assert result.plan.chosen["knows_nothing"] == summary
    first, _ = select_top([findings_of(result.study)])
    assert first[0].sentence == f"T{summary[1:]}"


def test_a_classifier_that_knows_its_task_is_not_named(tmp_path: Path) -> None:
    messages: list[str] = []
    data = examples(tmp_path, 80)
    study = importance(classifier(), task="sst2", data=data, by="confidence", log=messages.append)
    result = search(
        classifier(), task="sst2", data=data, remove=2, **RANK, run=Run(log=messages.append)
    )
    assert "knows_nothing" not in study.record["importance"]
    assert "knows_nothing" not in result.study.record["pruning"]
    assert not [line for line in messages if "knows nothing" in line]


def test_a_classifier_that_only_knows_how_frequent_the_labels_are_is_named(tmp_path: Path) -> None:
    """Three of four are positive, and it says so of everything: right three times of four, better than log 2."""
    rows = [("a cat sat", str(int(number % 4 > 0))) for number in range(200)]
    model = untrained()
    with torch.no_grad():
        model.model.classifier.weight.zero_()
        model.model.classifier.bias.copy_(torch.tensor([0.25, 0.75]).log())
    study = importance(
        model,
        task="sst2",
        data=table(tmp_path / "dev.tsv", ("sentence", "label"), rows),
        by="confidence",
    )
    assert "accuracy 0.750" in study.record["importance"]["knows_nothing"]


def note_of(model: AttentionModel, task: str, data: Path) -> tuple[str | None, Chance]:
    the_task = get_task(task)
    prepared = the_task.prepare(model, the_task.items(data, "dev"))
    metrics = metrics_of(the_task, evaluate(model, the_task, prepared))
    return chance_note(model, the_task, prepared, metrics), the_task.chance(model, prepared)


def texts(path: Path, count: int = 40) -> Path:
    import random

    draw = random.Random(0)
    path.write_text("".join(f"{sentence(draw, least=4)}\n" for _ in range(count)), "utf-8")
    return path


def test_an_untrained_language_model_guesses_uniformly(tmp_path: Path) -> None:
    model = worded(BertForMaskedLM)
    note, chance = note_of(model, "masked", texts(tmp_path / "dev.txt"))
    assert chance.loss == pytest.approx(math.log(model.model.config.vocab_size))
    assert note is not None
    assert "loss" in note


def test_an_untrained_translator_is_named(tmp_path: Path) -> None:
    rows = [("the cat sat", "the dog ran")] * 20
    note, chance = note_of(
        translator(), "translation", table(tmp_path / "dev.tsv", ("source", "target"), rows)
    )
    assert chance.metric is not None
    assert note is not None


def test_a_similarity_that_does_not_order_pairs_is_named(tmp_path: Path) -> None:
    rows = [
        ("a cat sat", "the dog ran", number % 6) for number in range(30)
    ]  # the same pair: no order is known
    model = worded(BertModel)
    rows[0] = ("the dog", "a cat", 3)
    data = table(tmp_path / "dev.tsv", ("sentence1", "sentence2", "score"), rows)
    note, chance = note_of(model, "similarity", data)
    assert chance == Chance(metric=0.0)
    assert note is not None


@pytest.mark.parametrize(
    ("metrics", "is_named"),
    [
        ({"accuracy": (0.52, 0.45, 0.59), "loss": (0.70, 0.68, 0.72)}, True),
        (
            {"accuracy": (0.52, 0.45, 0.59), "loss": (0.60, 0.55, 0.65)},
            False,
        ),  # few examples, but it is not guessing
        (
            {"accuracy": (0.80, 0.75, 0.85), "loss": (1.20, 0.90, 1.50)},
            False,
        ),  # overconfident, but right
        ({"accuracy": (0.10, 0.05, 0.15), "loss": (3.0, 2.5, 3.5)}, True),  # worse than chance
    ],
)
def test_both_metric_and_loss_have_to_be_those_of_a_guess(
    metrics: dict[str, tuple[float, float, float]], is_named: bool, tmp_path: Path
) -> None:
    model, task = untrained(), get_task("sst2")
    rows = [("a cat sat", str(number % 2)) for number in range(20)]
    items = task.items(table(tmp_path / "dev.tsv", ("sentence", "label"), rows), "dev")
    options: Any = {
        name: dict(zip(("value", "low", "high"), ends, strict=True))
        for name, ends in metrics.items()
    }
    assert (chance_note(model, task, task.prepare(model, items), options) is not None) == is_named


@pytest.mark.real
def test_minilm_knows_similarity(zoo_model: Any, tmp_path: Path) -> None:
    from headscope.model.load import load

    pairs = [
        ("A man is playing a guitar.", "Someone plays the guitar.", 4.8),
        ("A dog runs in the park.", "The stock market fell today.", 0.1),
        ("Two children are eating apples.", "Kids eat fruit.", 4.0),
        ("The plane has landed.", "A woman slices an onion.", 0.0),
        ("A cat sleeps on the sofa.", "A cat is asleep on a couch.", 5.0),
        ("He bought a new car.", "Rain is expected tomorrow.", 0.2),
        ("A boy kicks a ball.", "A girl throws a ball.", 2.5),
        ("They are cooking dinner.", "A man fixes a bicycle.", 0.3),
    ]
    data = table(tmp_path / "dev.tsv", ("sentence1", "sentence2", "score"), pairs)
    assert note_of(load(zoo_model("minilm")), "similarity", data)[0] is None


def judged(value: float, low: float, high: float, loss: tuple[float, float, float]) -> Any:
    task, prepared = (
        get_task("sst2"),
        Prepared([Item(("a",), 0, "")] * 10, [], [], None, Counts()),
    )
    task.chance = lambda model, prepared: Chance(metric=0.6, loss=0.693)  # type: ignore[method-assign]
    metrics = {"accuracy": dict(zip(("value", "low", "high"), (value, low, high), strict=True))}
    return chance_note(
        untrained(),
        task,
        prepared,
        metrics | {"loss": dict(zip(("value", "low", "high"), loss, strict=True))},
    )


def test_a_good_model_on_few_examples_is_not_called_ignorant() -> None:
    record = judged(0.8, 0.49, 0.943, (0.43, 0.1, 0.76))
    assert record.startswith(
        "10 examples are too few to show that this model is better than chance on sst2 (accuracy 0.800"
    )
    assert judged(0.61, 0.35, 0.85, (0.70, 0.6, 0.8)).startswith(
        "this model is at chance level on sst2"
    )
    assert judged(0.9, 0.7, 0.97, (0.43, 0.1, 0.76)) is None
