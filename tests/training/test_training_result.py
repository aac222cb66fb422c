"""Training from Python: a loaded model is copied, nothing is written without `out`, and the result can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

import headscope
from headscope import FinetuneConfig, HeadscopeError, Masked, Reading, Run, TaskData
from worded import glue, saved

FAST: dict[str, Any] = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "bert", BertModel)
    saved(tmp_path / "classifier", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "data", train=24, dev=8)
    return tmp_path


@pytest.mark.parametrize("name", ["bert", "classifier"])
def test_a_loaded_model_is_trained_as_its_files_are_and_stays_as_it_was(
    folder: Path, name: str
) -> None:
    model = headscope.load(name)
    before = {key: value.clone() for key, value in model.model.state_dict().items()}
    live = headscope.finetune(model, "data", task="sst2", **FAST)
    from_files = headscope.finetune(name, "data", task="sst2", out="made", **FAST)
    assert all(torch.equal(value, before[key]) for key, value in model.model.state_dict().items())
    trained = from_files.model.model.state_dict()
    assert all(
        torch.equal(value, trained[key]) for key, value in live.model.model.state_dict().items()
    )
    assert live.record["epochs"] == from_files.record["epochs"]
    assert live.record["model"] == from_files.record["model"]
    assert sorted(path.name for path in folder.iterdir()) == ["bert", "classifier", "data", "made"]
    assert (live.path, from_files.path) == (None, Path("made"))


def test_edits_of_a_loaded_model_are_trained_under(folder: Path) -> None:
    model = headscope.load("classifier").edit_permanently(Masked("star"))
    live = headscope.finetune(model, "data", task="sst2", **FAST)
    named = headscope.finetune("classifier", "data", task="sst2", mask="star", **FAST)
    assert [edit["mask"] for edit in live.record["model"]["edits"]] == ["star"]
    assert live.record["model"] == named.record["model"]
    assert live.record["epochs"] == named.record["epochs"]
    with pytest.raises(HeadscopeError, match=r"^`mask` has no effect on a model that is loaded"):
        headscope.finetune(model, "data", task="sst2", mask="star", **FAST)


def test_a_pruned_model_in_memory_is_trained_and_stays_pruned(folder: Path) -> None:
    pruned = headscope.prune("classifier", "0.1").model
    result = headscope.finetune(pruned, "data", task="sst2", **FAST)
    assert result.model.heads == pruned.heads
    written = result.write("small")
    assert headscope.load(written).heads == pruned.heads


def test_a_result_is_written_as_the_run_would_have_written_it(folder: Path) -> None:
    data, config = TaskData("sst2", "data"), FinetuneConfig(**FAST)
    result = headscope.finetune("bert", data, config, reading=Reading(), run=Run(seed=1))
    headscope.finetune("bert", data, config, run=Run(out=Path("made"), seed=1))
    assert result.write("again") == Path("again")
    names = {path.name for path in Path("made").iterdir()}
    assert names == {path.name for path in Path("again").iterdir()}
    for name in names - {"training.json"}:
        assert Path("made", name).read_bytes() == Path("again", name).read_bytes(), name
    assert json.loads(Path("again/training.json").read_text("utf-8")) == result.record
    with pytest.raises(HeadscopeError, match="a trained model is already there"):
        result.write("again")


def test_the_tables_have_every_epoch_and_a_notebook_shows_them(folder: Path) -> None:
    result = headscope.finetune("bert", "data", task="sst2", **FAST)
    table = result.tables["epochs"]
    assert list(table["epoch"]) == [1, 2]
    assert list(table["accuracy"]) == [epoch["value"] for epoch in result.record["epochs"]]
    assert {"accuracy_low", "accuracy_high", "train_loss", "dev_loss"} <= set(table.columns)
    assert "accuracy_low" in result._repr_html_()


def test_pretraining_in_memory_gives_the_model_of_the_files(folder: Path) -> None:
    saved(folder / "mlm", BertForMaskedLM)
    Path("texts.txt").write_text("the cat sat on the mat .\n" * 60, "utf-8")
    options: dict[str, Any] = {"architecture": "mlm", "steps": 3, "max_length": 16}
    result = headscope.pretrain(corpus="texts.txt", **options)
    headscope.pretrain(["the cat sat on the mat ."] * 60, out="made", **options)
    written = headscope.load("made").model.state_dict()
    assert all(
        torch.equal(value, written[key]) for key, value in result.model.model.state_dict().items()
    )
    assert list(result.tables["moments"]["step"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("option", [{"resume": True}, {"overwrite": True}, {"checkpoints": 2}])
def test_options_of_files_require_a_directory(folder: Path, option: dict[str, Any]) -> None:
    with pytest.raises(HeadscopeError, match="requires `out=DIR`"):
        headscope.finetune("bert", "data", task="sst2", **option)
    with pytest.raises(HeadscopeError, match="requires `out=DIR`"):
        headscope.pretrain(corpus="texts.txt", **option)
