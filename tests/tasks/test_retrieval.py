"""Which paragraph answers the question?"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged, log_softmax
from test_similarity import vector
from transformers import BertModel

from headscope.tasks import Item, Prepared, get_task
from worded import sentence, worded

CHANCE = random.Random(5)
PARAGRAPHS = [sentence(CHANCE, least=6, most=14) for _ in range(5)]
ASKED = [(sentence(CHANCE), CHANCE.randrange(5)) for _ in range(12)]


def squad(path: Path) -> Path:
    by_paragraph = [
        {
            "context": text,
            "qas": [
                {
                    "id": f"q{i}",
                    "question": question,
                    "answers": [{"text": text.split()[0], "answer_start": 0}],
                }
                for i, (question, which) in enumerate(ASKED)
                if which == number
            ],
        }
        for number, text in enumerate(PARAGRAPHS)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": by_paragraph}]}), "utf-8")
    return path


def test_losses_and_ranks_are_those_written_out(tmp_path: Path) -> None:
    model, task = worded(BertModel), get_task("retrieval")
    items = task.items(squad(tmp_path / "dev.json"))
    _, result = judged(model, task, items)
    targets = [text for text in PARAGRAPHS if any(item.target == text for item in items)]
    vectors = [vector(model, text) for text in targets]
    reciprocals, firsts = [], []
    for i, item in enumerate(items):
        question = vector(model, item.texts[0])
        cosines = [sum(a * b for a, b in zip(question, one, strict=True)) for one in vectors]
        right = targets.index(item.target)
        rank = sorted(cosines, reverse=True).index(cosines[right]) + 1
        assert result.losses[i] == pytest.approx(
            -log_softmax([20 * one for one in cosines], right), abs=1e-4
        )
        assert result.scores[i] == pytest.approx([float(rank == 1), 1 / rank])
        reciprocals.append(1 / rank)
        firsts.append(rank == 1)
    assert 0 < sum(firsts) < len(firsts)
    assert task.measure(result.scores) == pytest.approx(
        {"accuracy@1": sum(firsts) / len(firsts), "mrr": sum(reciprocals) / len(reciprocals)}
    )


def test_batches_change_nothing(tmp_path: Path) -> None:
    model, task = worded(BertModel), get_task("retrieval")
    items = task.items(squad(tmp_path / "dev.json"))
    single, many = (judged(model, task, items, batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-4
    assert np.array_equal(single.scores, many.scores)


def test_of_paragraphs_as_near_half_are_before() -> None:
    """The right one and another are the same vector; a third is further away."""
    items = [Item(("q", text), text) for text in ("one", "two", "three")]
    near, far = [1.0, 0.0], [0.0, 1.0]
    answers = torch.tensor([near, near, near, near, far, near])  # paragraph, question of each item
    prepared = Prepared(items, [], [], np.array([0, 1, 2]), None)  # type: ignore[arg-type]
    result = get_task("retrieval").scores(answers, prepared, range(3))
    assert result.tolist() == [[0, 1 / 1.5], [0, 1 / 1.5], [0, 1 / 3]]
