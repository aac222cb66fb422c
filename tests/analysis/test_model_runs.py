"""The default analysis reads each text once, and runs the model once for each batch of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope
from headscope.data import examples as examples_module
from headscope.model.attention_model import AttentionModel

sys.path.insert(0, str(Path(__file__).parents[1] / "planted"))
from planted import planted

TEXTS = ["the cat sat on the mat .", "the dog sat , the cat sat", "a mat", "the cat ."] * 25


class Forwards:
    """Counts the calls of a model, and of its embeddings and layers' weights: a forward that skips no layer."""

    def __init__(self, model: AttentionModel) -> None:
        self.calls, self.layers = 0, 0
        model.model.register_forward_pre_hook(self._count)
        for layer in model.model.encoder.layer:
            layer.register_forward_pre_hook(self._count_layer)

    def _count(self, *arguments: Any) -> None:
        self.calls += 1

    def _count_layer(self, *arguments: Any) -> None:
        self.layers += 1


def test_the_model_runs_once_for_each_batch_and_for_the_self_check() -> None:
    model = planted()
    checked = Forwards(model)
    model.self_check()
    of_check = checked.calls
    analysed = Forwards(model)
    study = headscope.analyze(model, data=headscope.TextData(texts=TEXTS))
    batches = -(-len(TEXTS) // 32)
    assert analysed.calls == batches + of_check
    assert analysed.layers == analysed.calls * len(model.model.encoder.layer)
    assert len(study.tables["examples"])  # without a pass of their own


def test_a_corpus_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), "utf-8")
    opened: list[Path] = []
    read = examples_module.read_examples

    def count(files: Any, **options: Any) -> Any:
        opened.extend(files)
        return read(files, **options)

    monkeypatch.setattr("headscope.study.inputs.read_examples", count)
    headscope.analyze(planted(), data=headscope.TextData(corpus=corpus))
    assert len(opened) == 1


def test_the_rows_for_distances_follow_from_all_rows_and_seed() -> None:
    data = headscope.TextData(texts=[" ".join([*TEXTS[:4], str(i)]) for i in range(3)])

    def distances(**options: Any) -> Any:
        study = headscope.analyze(planted(), data=data, statistics=["twin-distance"], **options)
        return study.maps["js/encoder"]

    sampled, every = distances(), distances(all_rows=True)
    assert not np.allclose(sampled, every, equal_nan=True)
    assert not np.allclose(sampled, distances(seed=1), equal_nan=True)
    np.testing.assert_array_equal(every, distances(all_rows=True, seed=1))
