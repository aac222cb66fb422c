"""Where in the paragraph does the answer stand?"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged, log_softmax
from transformers import BertForQuestionAnswering, BertModel

from headscope.data.squad import Question
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.tasks import Item, Prepared, get_task
from headscope.tasks.inference import answers
from worded import sentence, worded

CHANCE = random.Random(13)


def written(path: Path) -> Path:
    """Short and long paragraphs; the answer is two words somewhere in it, or there is none."""
    paragraphs = []
    for number in range(8):
        context = sentence(CHANCE, least=6, most=60)
        words = context.split()
        first = CHANCE.randrange(len(words) - 1)
        answer = {
            "text": " ".join(words[first : first + 2]),
            "answer_start": len(" ".join([*words[:first], ""])),
        }
        none = number % 4 == 3
        model_and_items = {
            "id": f"q{number}",
            "question": sentence(CHANCE, most=5),
            "answers": [] if none else [answer],
        }
        paragraphs.append({"context": context, "qas": [model_and_items | {"is_impossible": none}]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")
    return path


@pytest.fixture
def model_and_items(tmp_path: Path) -> tuple[AttentionModel, list[Item]]:
    return worded(BertForQuestionAnswering), get_task("squad").items(written(tmp_path / "dev.json"))


def test_losses_are_those_of_every_window_alone(
    model_and_items: tuple[AttentionModel, list[Item]],
) -> None:
    model, items = model_and_items
    prepared, result = judged(model, get_task("squad"), items)
    assert max(len(part) for part in prepared.parts) > 2
    assert min(len(part) for part in prepared.parts) == 1
    for i, part in enumerate(prepared.parts):
        windows = []
        for number in part:
            ids, types = (
                prepared.sequences[number].source.ids,
                prepared.sequences[number].source.token_types,
            )
            with torch.no_grad():
                output = model.model(
                    input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])
                )
            first, last = prepared.targets[number].tolist()
            sides = (output.start_logits[0].tolist(), first), (output.end_logits[0].tolist(), last)
            windows.append(-sum(log_softmax(logits, which) for logits, which in sides) / 2)
        assert result.losses[i] == pytest.approx(sum(windows) / len(windows), abs=1e-4)


def test_windows_cover_the_paragraph_and_name_the_answer_s_tokens(
    model_and_items: tuple[AttentionModel, list[Item]],
) -> None:
    model, items = model_and_items
    prepared = get_task("squad").prepare(model, items)
    assert model.tokenizer is not None
    for item, part in zip(items, prepared.parts, strict=True):
        seen, held = set(), []
        for number in part:
            ids = prepared.sequences[number].source.ids
            assert len(ids) <= 32
            seen |= {position for position in prepared.extras[1][number] if position != (0, 0)}
            first, last = prepared.targets[number].tolist()
            if (first, last) != (0, 0):
                held.append(" ".join(model.tokenizer.convert_ids_to_tokens(ids[first : last + 1])))
        assert len(seen) == len(item.texts[1].split())
        wanted = {text for text, _ in item.target.answers}
        assert set(held) == wanted
        assert len(held) >= len(wanted)


def predictions_for(spans: dict[tuple[int, int], float], empty: float = -5.0) -> list[float]:
    """F1 and exact match of a question over "the old cat sat on a mat" when these spans of words have these scores."""
    context = "the old cat sat on a mat"
    question = Question("1", "who sat", context, (("old cat", 4), ("the cat", 0)), "x")
    prepared = get_task("squad").prepare(
        worded(BertForQuestionAnswering), [Item(("who sat", context), question)]
    )
    logits = torch.full((1, 2, 32), -9.0)
    logits[0, :, 0] = empty / 2
    for (first, last), score in spans.items():
        logits[0, 0, 4 + first] = logits[0, 1, 4 + last] = score / 2  # [CLS] who sat [SEP]
    scores: list[float] = get_task("squad").scores(logits, prepared, [0])[0].tolist()
    return scores


def test_f1_and_exact_match_are_squad_s() -> None:
    assert predictions_for({(1, 2): 4.0}) == [1, 1]  # old cat
    assert predictions_for({(0, 2): 4.0}) == [1, 1]  # the old cat: articles do not count
    assert predictions_for({(2, 2): 4.0}) == [1, 1]  # cat, against the annotator who said "the cat"
    assert predictions_for({(1, 3): 4.0}) == [
        pytest.approx(0.8),
        0,
    ]  # old cat sat: 2 of 3 and 2 of 2 words
    assert predictions_for({(3, 4): 4.0}) == [0, 0]
    assert predictions_for({(1, 2): 4.0}, empty=5.0) == [0, 0]  # no answer is better
    assert predictions_for({(2, 1): 4.0}) != [1, 1]  # an answer does not end before it begins


def test_the_best_span_of_all_windows_is_the_answer_and_the_empty_one_must_win_in_each(
    model_and_items: tuple[AttentionModel, list[Item]],
) -> None:
    model, items = model_and_items
    task = get_task("squad")
    prepared = task.prepare(model, items)
    which = next(
        i for i, part in enumerate(prepared.parts) if len(part) > 2 and items[i].target.answers
    )
    part = prepared.parts[which]
    holder = next(
        index for index, number in enumerate(part) if prepared.targets[number].tolist() != [0, 0]
    )
    first, last = prepared.targets[part[holder]].tolist()
    logits = torch.full((len(part), 2, 32), -9.0)
    logits[:, :, 0] = 1.0
    logits[holder, 0, first] = logits[holder, 1, last] = 2.0
    assert task.scores(logits, prepared, [which]).tolist() == [[1, 1]]
    logits[:, :, 0] = 3.0
    assert task.scores(logits, prepared, [which]).tolist() == [[0, 0]]
    logits[(holder + 1) % len(part), :, 0] = 0.0  # one window does not hold with it
    assert task.scores(logits, prepared, [which]).tolist() == [[1, 1]]


def test_a_question_without_an_answer_is_right_when_nothing_is_predicted(
    model_and_items: tuple[AttentionModel, list[Item]],
) -> None:
    model, items = model_and_items
    prepared = get_task("squad").prepare(model, items)
    which = next(i for i, item in enumerate(items) if not item.target.answers)
    logits = torch.full((len(prepared.parts[which]), 2, 32), -9.0)
    logits[:, :, 0] = 1.0
    assert get_task("squad").scores(logits, prepared, [which]).tolist() == [[1, 1]]
    logits[:, :, 9] = 2.0
    assert get_task("squad").scores(logits, prepared, [which]).tolist() == [[0, 0]]


def test_batches_change_nothing(model_and_items: tuple[AttentionModel, list[Item]]) -> None:
    single, many = (
        judged(model_and_items[0], get_task("squad"), model_and_items[1], batch_size=size)[1]
        for size in (1, 32)
    )
    assert np.abs(single.losses - many.losses).max() < 1e-4
    assert np.array_equal(single.scores, many.scores)


def test_without_labels_the_right_span_is_the_model_s(
    model_and_items: tuple[AttentionModel, list[Item]],
) -> None:
    model, items = model_and_items
    task = get_task("squad")
    prepared: Prepared = task.prepare(model, items)
    predicted = answers(model, task, prepared)
    own = task.with_predicted_labels(predicted, prepared)
    assert own.targets.tolist() == [
        [row.index(max(row)) for row in sides] for sides in predicted.tolist()
    ]


def test_a_bare_model_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertModel has no question-answering head"):
        get_task("squad").check(worded(BertModel))
