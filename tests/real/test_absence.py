"""Heads of a twin with random weights are called neither syntactic nor rare-word heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headscope
from headscope.model.twin import random_twin

pytestmark = pytest.mark.real
TREEBANK = Path(__file__).parents[3] / "shared" / "data" / "ud" / "en_ewt-ud-dev.conllu.gz"


def test_no_head_of_a_random_twin_is_called_syntactic_or_a_rare_word_head(zoo_model: Callable[..., Path]) -> None:
    if not TREEBANK.is_file():
        pytest.skip(f"{TREEBANK} is not there")
    model = random_twin(headscope.load(zoo_model("minilm")), seed=1)
    study = headscope.analyze(model, treebank=TREEBANK, frequency="english", limit=400, statistics=["entropy"])
    asked = study.tables["relation_heads"]
    assert len(asked) > 2_000
    assert asked["is_above"].mean() < 0.001
    roles = set(study.tables["roles"]["role"])
    assert roles <= {"undetermined", "broad"}
