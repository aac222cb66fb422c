"""Which token was here?"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged, log_softmax
from transformers import AutoModelForMaskedLM, BertForMaskedLM, BertModel

from headscope.errors import HeadscopeError
from headscope.tasks import Item, get_task
from headscope.tasks.inference import evaluate
from headscope.tasks.masked import MaskedTokenTask
from headscope.tasks.prepared import Prepared, batch_of
from tiny import examples, tiny
from toys import prepared as prepared_of
from worded import WORDS, sentence, worded

CHANCE = random.Random(7)
TEXTS = [sentence(CHANCE, least=1, most=25) for _ in range(14)]
MASK = WORDS.index("[MASK]")
FAMILIES = [
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "mobilebert",
]
FAMILIES += ["modernbert", "mpnet", "roberta", "xlm-roberta"]


def items() -> list[Item]:
    return [Item((text,), None, f"x:{i}") for i, text in enumerate(TEXTS, start=1)]


def test_a_text_a_line_is_read(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    assert [item.texts for item in get_task("mlm").items(tmp_path)] == [(text,) for text in TEXTS]


def test_losses_are_those_of_a_whole_forward_pass_over_each_text() -> None:
    model, task = worded(BertForMaskedLM), get_task("masked")
    prepared, result = judged(model, task, items())
    assert prepared.labels is not None
    sums = [0.0, 0.0, 0.0]
    for i, (sequence, labels) in enumerate(zip(prepared.sequences, prepared.labels, strict=True)):
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([sequence.source.ids])).logits[0].tolist()
        positions = [position for position, label in enumerate(labels) if label >= 0]
        losses = [-log_softmax(logits[position], labels[position]) for position in positions]
        right = sum(
            logits[position].index(max(logits[position])) == labels[position]
            for position in positions
        )
        assert result.losses[i] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
        assert result.scores[i] == pytest.approx([right, len(positions), sum(losses)], abs=1e-4)
        sums = [a + b for a, b in zip(sums, (right, len(positions), sum(losses)), strict=True)]
    metrics = task.measure(result.scores)
    assert metrics["accuracy"] == pytest.approx(sums[0] / sums[1])
    assert metrics["perplexity"] == pytest.approx(math.exp(sums[2] / sums[1]), rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_guessing_at_masked_places_alone_is_guessing_everywhere(family: str) -> None:
    """Every family's head, in a padded batch, against the library's own logits at all places."""
    model = tiny(family, head=AutoModelForMaskedLM)
    mask = 96  # not ESM's own, which rescales a text by the share of it that is masked
    model.tokenizer.mask_token_id = mask  # type: ignore[union-attr]
    task = MaskedTokenTask()
    plain = prepared_of(examples(family), torch.zeros(8))
    prepared = _masked(plain, mask)
    assert prepared.labels is not None
    batch = batch_of(model, prepared, range(8))
    with torch.no_grad():
        logits = model.model(**batch.inputs).logits
        result = task.extract_answers(task.call(model, batch), batch, prepared)
    for i, labels in enumerate(prepared.labels):
        losses = [
            -log_softmax(logits[i, at].tolist(), label)
            for at, label in enumerate(labels)
            if label >= 0
        ]
        assert result[i, 0].item() == pytest.approx(sum(losses), rel=1e-4, abs=1e-4)
        assert result[i, 1].item() == len(losses)
    assert not model.model.base_model._forward_hooks


def _masked(plain: Prepared, mask: int) -> Prepared:
    """Every third token, the first one at least."""
    sequences, labels = [], []
    for sequence in plain.sequences:
        ids = sequence.source.ids
        labels.append([token if i % 3 == 0 else -100 for i, token in enumerate(ids)])
        ids = [mask if i % 3 == 0 else token for i, token in enumerate(ids)]
        sequences.append(replace(sequence, source=replace(sequence.source, ids=ids)))
    return replace(plain, sequences=sequences, labels=labels, extras=mask)


def test_masks_are_the_same_each_time_and_in_any_order() -> None:
    model = worded(BertForMaskedLM)
    first, again = (get_task("masked").prepare(model, items()) for _ in range(2))
    backwards = get_task("masked").prepare(model, items()[::-1])
    assert first.labels == again.labels
    assert [s.source.ids for s in first.sequences] == [s.source.ids for s in again.sequences]
    assert backwards.labels is not None
    assert first.labels == backwards.labels[::-1]
    assert MaskedTokenTask(seed=1).prepare(model, items()).labels != first.labels


def test_a_share_of_the_content_is_masked_and_nothing_else_is_changed() -> None:
    model = worded(BertForMaskedLM)
    prepared = get_task("masked").prepare(model, items())
    assert prepared.labels is not None
    for item, sequence, labels in zip(
        prepared.items, prepared.sequences, prepared.labels, strict=True
    ):
        whole = model.tokenizer(item.texts[0])["input_ids"]  # type: ignore[misc]
        content = len(whole) - 2
        positions = [i for i, label in enumerate(labels) if label >= 0]
        assert len(positions) == max(1, round(0.15 * content))
        assert 0 not in positions
        assert len(whole) - 1 not in positions
        for i, token in enumerate(whole):
            assert (sequence.source.ids[i], labels[i]) == (
                (MASK, token) if i in positions else (token, -100)
            )


def test_a_mask_in_the_text_itself_is_not_asked_about() -> None:
    model, task = worded(BertForMaskedLM), get_task("masked")
    texts = ["the [MASK] sat on the mat", "a dog ran", "[MASK]"]
    prepared = task.prepare(model, [Item((text,), None, f"x:{i}") for i, text in enumerate(texts)])
    together = evaluate(model, task, prepared, batch_size=3)
    assert prepared.labels is not None
    for i, (sequence, labels) in enumerate(zip(prepared.sequences, prepared.labels, strict=True)):
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([sequence.source.ids])).logits[0].tolist()
        losses = [-log_softmax(logits[at], label) for at, label in enumerate(labels) if label >= 0]
        assert together.losses[i] == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_batches_change_nothing() -> None:
    model, task = worded(BertForMaskedLM), get_task("masked")
    single, many = (judged(model, task, items(), batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-5
    assert np.abs(single.scores - many.scores).max() < 1e-4


def test_a_model_that_does_not_guess_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertModel does not predict masked tokens"):
        get_task("masked").check(worded(BertModel))
