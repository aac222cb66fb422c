"""How surprised is the model by a given translation?"""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import judged
from transformers import BertForMaskedLM

from headscope.errors import HeadscopeError
from headscope.tasks import get_task
from worded import sentence, translator, worded

CHANCE = random.Random(9)
PAIRS = [(sentence(CHANCE), sentence(CHANCE)) for _ in range(12)]


def written(folder: Path) -> Path:
    (folder / "dev.tsv").write_text(
        "".join(f"{source}\t{target}\n" for source, target in PAIRS), "utf-8"
    )
    return folder / "dev.tsv"


def test_a_table_and_two_files_are_read_alike(tmp_path: Path) -> None:
    for i, name in enumerate(("dev.en", "dev.fr")):
        (tmp_path / name).write_text("".join(f"{pair[i]}\n" for pair in PAIRS) + "\n", "utf-8")
    task = get_task("translation")
    single = task.items(written(tmp_path))
    two = task.items(f"{tmp_path / 'dev.en'},{tmp_path / 'dev.fr'}")
    assert [item.texts for item in single] == [item.texts for item in two] == PAIRS
    three = task.items(f"{tmp_path / 'dev.en'}, {tmp_path / 'dev.fr'}", limit=3)
    assert [item.texts for item in three] == [PAIRS[0], PAIRS[4], PAIRS[8]]


def test_a_comma_in_the_name_of_a_table_makes_it_no_two_files(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    assert [item.texts for item in get_task("translation").items(written(folder))] == PAIRS


def test_losses_are_the_library_s_own(tmp_path: Path) -> None:
    model, task = translator(), get_task("translation")
    _, result = judged(model, task, task.items(written(tmp_path)))
    tokenizer = model.tokenizer
    assert tokenizer is not None
    total, count, hits = 0.0, 0, 0
    for i, (source, target) in enumerate(PAIRS):
        inputs = tokenizer(source, return_tensors="pt")
        labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            output = model.model(**inputs, labels=labels)
        right = int((output.logits.argmax(dim=-1) == labels).sum())
        size = labels.shape[1]
        assert size == len(target.split()) + 1  # the end mark is asked for too
        assert result.losses[i] == pytest.approx(output.loss.item(), abs=1e-4)
        assert result.scores[i] == pytest.approx([right, size, output.loss.item() * size], abs=1e-3)
        total, count, hits = total + output.loss.item() * size, count + size, hits + right
    metrics = task.measure(result.scores)
    assert metrics["accuracy"] == pytest.approx(hits / count)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_batches_change_nothing(tmp_path: Path) -> None:
    model, task = translator(), get_task("translation")
    items = task.items(written(tmp_path))
    single, many = (judged(model, task, items, batch_size=size)[1] for size in (1, 32))
    assert np.abs(single.losses - many.losses).max() < 1e-4
    assert np.abs(single.scores - many.scores).max() < 1e-3


def test_an_encoder_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="BertForMaskedLM does not translate"):
        get_task("translation").check(worded(BertForMaskedLM))
