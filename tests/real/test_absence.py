"""Heads of a twin with random weights are called neither syntactic nor coreferential nor rare-word heads."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

import headscope
from headscope.model.new_model import random_control

pytestmark = pytest.mark.real
DATA = Path(__file__).parents[3] / "shared" / "data"
TREEBANK = DATA / "ud" / "en_ewt-ud-dev.conllu.gz"
DOCUMENTS = DATA / "coref" / "litbank_75docs.conll.gz"


@pytest.mark.slow
def test_no_head_of_a_random_control_is_called_syntactic_or_a_rare_word_head(
    zoo_model: Callable[..., Path],
) -> None:
    if not TREEBANK.is_file():
        pytest.skip(f"{TREEBANK} is not there")
    model = random_control(headscope.load(zoo_model("minilm")), seed=1)
    study = headscope.analyze(
        model, treebank=TREEBANK, frequency="english", limit=400, statistics=["entropy"]
    )
    relations = study.tables["relation_heads"]
    assert len(relations) > 2_000
    assert relations["is_above"].mean() < 0.001
    roles = set(study.tables["roles"]["role"])
    assert roles <= {"undetermined", "broad"}


@pytest.mark.slow
def test_no_head_of_a_random_control_is_called_coreferential(
    zoo_model: Callable[..., Path], tmp_path: Path
) -> None:
    if not DOCUMENTS.is_file():
        pytest.skip(f"{DOCUMENTS} is not there")
    some = tmp_path / "some.conll"
    with gzip.open(DOCUMENTS, "rt", encoding="utf-8") as file:
        some.write_text("#begin document".join("".join(file).split("#begin document")[:9]), "utf-8")
    model = random_control(headscope.load(zoo_model("minilm")), seed=1)
    study = headscope.analyze(model, coreference=some, statistics=["entropy"])
    relations = study.tables["coreference_heads"]
    assert len(relations) == 72
    assert set(study.tables["roles"]["role"]) <= {"undetermined", "broad"}
