"""What is reached without knowing anything: recomputed from the files, and reached by models that know nothing.

Of each task a model at chance is named, and answers that are mostly right are not.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

from headscope.ablation.chance import chance_note
from headscope.ablation.significance import metrics_of
from headscope.model.attention_model import AttentionModel
from headscope.tasks import Judged, Prepared, Task, get_task
from headscope.tasks.inference import evaluate
from headscope.tasks.prepared import sequences_of
from worded import LONGEST, WORDS, sentence, table, tokenizer, worded

ENDINGS = ("sent1", "sent2", "ending0", "ending1", "ending2", "label")


def note_on(model: AttentionModel, task: Task, prepared: Prepared, result: Judged) -> str | None:
    return chance_note(model, task, prepared, metrics_of(task, result))


def by_answers(task: Task, prepared: Prepared, answers: Tensor) -> Judged:
    """answers: one a sequence"""
    everyone = range(len(prepared.items))
    return task.judge(answers[sequences_of(prepared, everyone)], prepared, everyone)


def squad(path: Path, paragraphs: int, questions: int) -> list[int]:
    """Paragraphs of 8 to 16 words with unequally many questions, each about two words; which paragraph each is of."""
    draw = random.Random(4)
    contexts = [sentence(draw, least=8, most=16) for _ in range(paragraphs)]
    owners = sorted(
        min(draw.randrange(paragraphs), draw.randrange(paragraphs)) for _ in range(questions)
    )
    data = []
    for number, context in enumerate(contexts):
        targets = []
        for name in range(owners.count(number)):
            first = draw.randrange(3)
            words = context.split()
            start = len("".join(f"{word} " for word in words[:first]))
            answers = [{"text": " ".join(words[first : first + 2]), "answer_start": start}]
            targets.append(
                {"id": f"{number}.{name}", "question": sentence(draw, most=4), "answers": answers}
            )
        data.append({"context": context, "qas": targets})
    path.write_text(json.dumps({"data": [{"paragraphs": data}]}), "utf-8")
    return owners


def test_retrieval_at_chance_takes_any_of_the_paragraphs(tmp_path: Path) -> None:
    owners = squad(tmp_path / "dev.json", 6, 40)
    model, task = worded(BertModel), get_task("retrieval")
    prepared = task.prepare(model, task.items(tmp_path / "dev.json"))
    chance, paragraphs = task.chance(model, prepared), len(set(owners))
    assert chance.metric == pytest.approx(1 / paragraphs)
    assert chance.loss == pytest.approx(math.log(paragraphs))
    same = torch.ones(len(prepared.sequences), 8) / math.sqrt(8)  # every text has one vector
    result = by_answers(task, prepared, same)
    assert result.losses == pytest.approx(np.full(40, math.log(paragraphs)), abs=1e-5)
    note = note_on(model, task, prepared, result)
    assert note is not None
    assert note.startswith("this model is at chance level on retrieval (accuracy@1 ")
    vectors = torch.zeros(len(prepared.sequences), paragraphs)
    for paragraph, question in prepared.parts:
        vectors[paragraph, paragraph] = vectors[question, paragraph] = 1.0
    assert note_on(model, task, prepared, by_answers(task, prepared, vectors)) is None


def test_choice_at_chance_always_takes_the_most_frequent_place(tmp_path: Path) -> None:
    draw = random.Random(5)
    labels = [0] * 20 + [1] * 12 + [2] * 8
    rows = [
        (sentence(draw), "the man", *(sentence(draw) for _ in range(3)), label) for label in labels
    ]
    model, task = worded(BertForMultipleChoice), get_task("swag")
    prepared = task.prepare(model, task.items(table(tmp_path / "dev.tsv", ENDINGS, rows)))
    chance = task.chance(model, prepared)
    assert chance.metric == pytest.approx(20 / 40)
    assert chance.loss == pytest.approx(
        -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
    )
    with torch.no_grad():
        model.model.classifier.weight.zero_()  # all endings alike: the first is taken
    result = evaluate(model, task, prepared)
    assert result.losses == pytest.approx(np.full(40, math.log(3)), abs=1e-5)
    assert task.measure(result.scores)["accuracy"] == chance.metric
    note = note_on(model, task, prepared, result)
    assert note is not None
    assert note.startswith("this model is at chance level on swag (accuracy 0.500 ")
    answers = torch.zeros(len(prepared.sequences), 1)
    for part, label in zip(prepared.parts, labels, strict=True):
        answers[part[label]] = 2.0
    assert note_on(model, task, prepared, by_answers(task, prepared, answers)) is None


def test_causal_at_chance_says_the_most_frequent_token_and_holds_all_for_alike(
    tmp_path: Path,
) -> None:
    draw = random.Random(6)
    lines = [sentence(draw, least=4) for _ in range(30)]
    (tmp_path / "dev.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    config = GPT2Config(
        vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=LONGEST, pad_token_id=0
    )
    model, task = (
        AttentionModel(GPT2LMHeadModel(config).eval(), tokenizer(ends=True), name="gpt"),
        get_task("causal"),
    )
    with torch.no_grad():
        model.model.lm_head.weight.zero_()  # all tokens alike
    prepared = task.prepare(model, task.items(tmp_path / "dev.txt"))
    targets = Counter(
        word for line in lines for word in [*line.split()[1:], "[SEP]"]
    )  # all tokens but the first
    chance = task.chance(model, prepared)
    assert chance.metric == pytest.approx(max(targets.values()) / sum(targets.values()))
    assert chance.loss == pytest.approx(math.log(len(WORDS)))
    result = evaluate(model, task, prepared)
    assert result.losses == pytest.approx(np.full(30, math.log(len(WORDS))), abs=1e-5)
    note = note_on(model, task, prepared, result)
    assert note is not None
    assert note.startswith("this model is at chance level on causal (accuracy ")
    tokens = torch.tensor([len(sequence.source.ids) - 1.0 for sequence in prepared.sequences])
    right = torch.stack(
        [0.5 * tokens, tokens, (0.8 * tokens).round()], dim=1
    )  # 0.5 nats a token, four of five right
    assert note_on(model, task, prepared, by_answers(task, prepared, right)) is None


def test_questions_at_chance_hold_all_tokens_of_a_window_for_alike(tmp_path: Path) -> None:
    squad(tmp_path / "dev.json", 6, 24)
    model, task = worded(BertForQuestionAnswering), get_task("squad")
    items = task.items(tmp_path / "dev.json")
    prepared = task.prepare(model, items)
    lengths = [
        3 + sum(len(text.split()) for text in item.texts) for item in items
    ]  # [CLS] question [SEP] text [SEP]
    assert max(lengths) < LONGEST, "one window a question"
    chance = task.chance(model, prepared)
    assert chance.metric is None
    assert chance.loss == pytest.approx(sum(map(math.log, lengths)) / 24)
    with torch.no_grad():
        model.model.qa_outputs.weight.zero_()
        model.model.qa_outputs.bias.zero_()
    result = evaluate(
        model, task, prepared, batch_size=5
    )  # padded, and padding is no token to be taken
    assert result.losses == pytest.approx([math.log(length) for length in lengths], abs=1e-5)
    note = note_on(model, task, prepared, result)
    assert note is not None
    assert note.startswith("this model is at chance level on squad (loss ")
    logits = torch.full((24, 2, LONGEST), -1e9)
    for number, length in enumerate(lengths):
        logits[number, :, :length] = 0.0
        for side, position in enumerate(prepared.targets[number].tolist()):
            logits[number, side, position] = 3.0
    assert note_on(model, task, prepared, by_answers(task, prepared, logits)) is None
