"""Which files of its source a saved model gets: those that say how it is read, licences, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headscope
from embedding import TEXTS, embedding, vectors_of
from headscope.errors import HeadscopeWarning
from headscope.model import saving
from headscope.model.load import load
from worded import table

LEFT_OUT = (
    "LICENSE.py",
    "license.bin",
    "notice.safetensors",
    "modeling_mine.py",
    "onnx/",
    "openvino/",
    "optimizer.pt",
    "pytorch_model.bin",
    "2_Dense/pytorch_model.bin",
)
TAKEN = {
    "LICENSE": b"do as you like",
    "NOTICE.txt": b"made by many",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source with everything that a hub model may have next to its weights."""
    prompts = {"prompts": {"query": "who is "}, "default_prompt_name": None}
    dense = "torch.nn.modules.activation.Tanh"
    folder = embedding(tmp_path / "source", "cls", dense=dense, length=20, prompts=prompts)
    for name in ("onnx/model.onnx", "openvino/openvino_model.xml", *LEFT_OUT):
        if not name.endswith("/"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"another model")
    for name, content in TAKEN.items():
        (folder / name).write_bytes(content)
    return folder


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", ["small", "plain", "onnx"])
def test_a_pruned_model_gets_the_files_that_are_listed_and_no_others(
    form: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
        # An export takes half a minute and is tested in test_forms.py: here any graph will do.
        monkeypatch.setattr(
            saving,
            "_write_onnx",
            lambda model, folder: (folder / "model.onnx").write_bytes(b"graph"),
        )
    model = load(source)
    with pytest.warns(
        HeadscopeWarning, match=r"not copied from the source directory: .*onnx/.*pytorch_model\.bin"
    ):
        out = headscope.prune(model, "0.1").model.save(tmp_path / "out", form=form)
    weights = {"model.onnx"} if form == "onnx" else {"model.safetensors"}
    assert names_in(out) == weights | {
        "config.json",
        "cut.json",
        "README.md",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        *TAKEN,
    }
    for name in (
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "config_sentence_transformers.json",
        *TAKEN,
    ):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert json.loads((out / "cut.json").read_text("utf-8"))["left_out"] == sorted(LEFT_OUT)
    card = (out / "README.md").read_text("utf-8")
    assert "pooling: first (1_Pooling/config.json)" in card
    assert "pytorch_model.bin" in card
    assert "attention_mask" in card or form != "onnx"


def test_a_trained_model_keeps_them(source: Path, tmp_path: Path) -> None:
    rows = [(TEXTS[i % 4], TEXTS[(i + 1) % 4], i % 5) for i in range(8)]
    for split in ("train", "dev"):
        table(tmp_path / "data" / f"{split}.tsv", ("sentence1", "sentence2", "score"), rows)
    cut = headscope.prune(load(source), "0.1").model.save(tmp_path / "cut")
    out = tmp_path / "trained"
    options = {"epochs": 1, "batch_size": 4, "device": "cpu"}
    headscope.finetune(cut, tmp_path / "data", task="stsb", out=out, **options)
    model = load(out)
    assert (model.reading.pooling, model.reading.max_length) == ("first", 20)
    assert vectors_of(model, TEXTS).shape == (len(TEXTS), 6)
    assert set(TAKEN) <= names_in(out)


def test_the_source_may_be_gone_when_the_model_is_saved(source: Path, tmp_path: Path) -> None:
    cut = headscope.prune(load(source), "0.1").model
    source.rename(tmp_path / "elsewhere")
    again = load(cut.save(tmp_path / "out"))
    assert again.reading.pooling == "first"
    assert float((vectors_of(again, TEXTS) - vectors_of(cut, TEXTS)).abs().max()) < 1e-5


def test_a_model_that_states_nothing_gets_no_statement(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "source")
    (folder / "modules.json").unlink()
    out = headscope.prune(load(folder), "0.1").model.save(tmp_path / "out", form="plain")
    assert not {"modules.json", "1_Pooling/config.json"} & names_in(out)
