"""Which of a few endings?"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged, log_softmax
from transformers import BertForMultipleChoice, BertModel

from headscope.errors import HeadscopeError
from headscope.tasks import get_task
from headscope.tasks.inference import answers
from worded import sentence, table, worded

CHANCE = random.Random(11)
ROWS = [
    (sentence(CHANCE), "the man", *(sentence(CHANCE) for _ in range(4)), CHANCE.randrange(4))
    for _ in range(11)
]
NAMES = ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label")


def test_swag_s_table_and_listed_choices_are_read_alike(tmp_path: Path) -> None:
    first = get_task("swag").items(table(tmp_path / "swag.tsv", NAMES, ROWS))
    lines = [
        json.dumps(
            {
                "question": row[0],
                "choices": [f"the man {ending}" for ending in row[2:6]],
                "answer": row[6],
            }
        )
        for row in ROWS
    ]
    (tmp_path / "choice.jsonl").write_text("\n".join(lines), "utf-8")
    second = get_task("choice").items(tmp_path / "choice.jsonl")
    assert [(item.texts, item.target) for item in first] == [
        (item.texts, item.target) for item in second
    ]
    assert first[0].texts[1] == f"the man {ROWS[0][2]}"


def test_losses_are_those_of_the_library_s_own_call(tmp_path: Path) -> None:
    model, task = worded(BertForMultipleChoice), get_task("swag")
    items = task.items(table(tmp_path / "dev.tsv", NAMES, ROWS))
    _, result = judged(model, task, items, batch_size=5)  # a batch's border inside an example
    right = []
    for i, row in enumerate(ROWS):
        endings = [f"the man {ending}" for ending in row[2:6]]
        inputs = model.tokenizer([row[0]] * 4, endings, return_tensors="pt", padding=True)  # type: ignore[misc]
        with torch.no_grad():
            logits = (
                model.model(**{name: value[None] for name, value in inputs.items()})
                .logits[0]
                .tolist()
            )
        right.append(float(logits.index(max(logits)) == row[6]))
        assert result.losses[i] == pytest.approx(-log_softmax(logits, row[6]), abs=1e-5)
        assert result.scores[i].tolist() == [right[-1]]
    assert 0 < sum(right) < len(right)
    assert task.measure(result.scores) == {"accuracy": pytest.approx(sum(right) / len(right))}


def test_batches_change_nothing(tmp_path: Path) -> None:
    model, task = worded(BertForMultipleChoice), get_task("swag")
    items = task.items(table(tmp_path / "dev.tsv", NAMES, ROWS))
    single, many = (judged(model, task, items, batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-5
    assert np.array_equal(single.scores, many.scores)


def test_without_labels_the_right_choice_is_the_model_s(tmp_path: Path) -> None:
    model, task = worded(BertForMultipleChoice), get_task("swag")
    prepared = task.prepare(model, task.items(table(tmp_path / "dev.tsv", NAMES, ROWS)))
    predicted = answers(model, task, prepared)[:, 0].view(-1, 4).tolist()
    own = task.with_predicted_labels(answers(model, task, prepared), prepared)
    assert own.targets.tolist() == [row.index(max(row)) for row in predicted]


def test_a_bare_model_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertModel has no multiple-choice head"):
        get_task("swag").check(worded(BertModel))
