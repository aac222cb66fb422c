"""A model with fixed heads on disk: it comes back as it was, what was tampered with does not, and others refuse it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification, BertModel

import headscope
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import fix
from headscope.model.surgery import prune
from headscope.model.weights import weights_sha256
from worded import saved, translator

PATTERNS = {"0.0": "previous", "1.*": "left"}


@pytest.fixture
def whole(tmp_path: Path) -> AttentionModel:
    return headscope.load(saved(tmp_path / "whole", BertForSequenceClassification, num_labels=3))


def answers(model: AttentionModel) -> torch.Tensor:
    inputs = model.tokenizer(
        ["the cat sat on a mat .", "good", "who is old ?"], return_tensors="pt", padding=True
    )
    with torch.inference_mode():
        return model(**inputs)[0]


def test_it_comes_back_to_the_last_bit(whole: AttentionModel, tmp_path: Path) -> None:
    fixed = fix(whole, PATTERNS)
    again = headscope.load(fixed.save(tmp_path / "fixed"))
    assert again.fixed == fixed.fixed
    assert again.heads == whole.heads
    assert torch.equal(answers(again), answers(fixed))
    with whole.edited(headscope.Fixed(PATTERNS)):
        assert torch.allclose(answers(again), answers(whole), atol=1e-5)
    twice = again.save(tmp_path / "twice")
    for name in ("model.safetensors",):
        assert (twice / name).read_bytes() == (tmp_path / "fixed" / name).read_bytes()
    assert weights_sha256(again) == weights_sha256(headscope.load(twice))


def test_it_comes_back_in_float64(whole: AttentionModel, tmp_path: Path) -> None:
    folder = fix(whole, PATTERNS).save(tmp_path / "fixed")
    exact, again = (headscope.load(one, dtype="float64") for one in (whole.path, folder))
    with exact.edited(headscope.Fixed(PATTERNS)):
        assert torch.allclose(answers(again), answers(exact), rtol=0, atol=1e-6)


def test_the_file_has_no_rows_for_them_and_the_manifest_names_them(
    whole: AttentionModel, tmp_path: Path
) -> None:
    folder = fix(whole, PATTERNS).save(tmp_path / "fixed")
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    assert shapes["bert.encoder.layer.0.attention.self.query.weight"] == (8, 16)
    assert shapes["bert.encoder.layer.0.attention.self.value.weight"] == (16, 16)
    assert not [name for name in shapes if "layer.1.attention.self.key" in name]
    record = json.loads((folder / "cut.json").read_text())
    assert record["removed"] == ""
    assert record["fixed"]["bert.encoder.layer.0.attention.self"]["patterns"] == ["previous", None]
    card = (folder / "README.md").read_text()
    assert "with 3 of 4 attention heads fixed" in card
    assert "- 0.0=previous" in card


def test_it_is_fixed_and_cut_further_after_loading(whole: AttentionModel, tmp_path: Path) -> None:
    folder = fix(whole, {"0.0": "previous"}).save(tmp_path / "fixed")
    more = prune(fix(headscope.load(folder), {"1.1": "end"}), "1.0")
    last = headscope.load(more.save(tmp_path / "more"))
    with whole.edited(headscope.Fixed({"0.0": "previous", "1.1": "end"}), headscope.Ablate("1.0")):
        assert torch.allclose(answers(last), answers(whole), atol=1e-5)
    assert last.cut is not None
    assert last.cut.history == (
        "1 heads with fixed patterns.",
        "Without 1.0. 2 heads with fixed patterns.",
    )


def test_a_bare_encoder_of_it_and_a_new_head_on_it(whole: AttentionModel, tmp_path: Path) -> None:
    folder = fix(whole, PATTERNS).save(tmp_path / "fixed")
    bare = headscope.load(folder, model_class="AutoModel")
    assert bare.fixed == headscope.load(folder).fixed
    topped = headscope.load(
        bare.save(tmp_path / "bare"), model_class="AutoModelForSequenceClassification"
    )
    assert topped.fixed == bare.fixed


def test_a_translator_comes_back(tmp_path: Path) -> None:
    model = translator()
    fixed = fix(model, {"encoder.*.*": "right", "decoder.*.0": "previous"})
    fresh = type(model.model)(model.model.config).model
    for side in (
        "encoder",
        "decoder",
    ):  # sines, which transformers does not save: those of the tests are chance
        positions = getattr(fixed.model.model, side).embed_positions
        positions.load_state_dict(getattr(fresh, side).embed_positions.state_dict())
    again = headscope.load(fixed.save(tmp_path / "fixed"), model_class="AutoModelForSeq2SeqLM")
    inputs = model.tokenizer(["the cat", "who is the old dog ?"], return_tensors="pt", padding=True)
    outputs = [one.model.generate(**inputs, max_new_tokens=6).tolist() for one in (fixed, again)]
    assert outputs[0] == outputs[1]
    assert again.fixed == fixed.fixed


def test_an_edited_manifest_of_patterns_is_refused(whole: AttentionModel, tmp_path: Path) -> None:
    path = fix(whole, PATTERNS).save(tmp_path / "fixed") / "cut.json"
    record = json.loads(path.read_text())
    record["fixed"]["bert.encoder.layer.0.attention.self"]["patterns"] = ["next", None]
    path.write_text(json.dumps(record))
    with pytest.raises(HeadscopeError, match="was edited: its checksum differs"):
        headscope.load(path.parent)
    record["fixed"]["bert.encoder.layer.0.attention.self"] = {"patterns": None}
    path.write_text(json.dumps(record))
    with pytest.raises(HeadscopeError, match=r"cut\.json: not readable"):
        headscope.load(path.parent)


def test_transformers_does_not_take_it_for_a_whole_one(
    whole: AttentionModel, tmp_path: Path
) -> None:
    folder = fix(whole, {"0.0": "previous"}).save(tmp_path / "fixed")
    with pytest.raises(RuntimeError, match="mismatch"):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize("form", ["plain", "onnx"])
def test_other_forms_are_refused_and_nothing_is_written(
    form: str, whole: AttentionModel, tmp_path: Path
) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    with pytest.raises(
        HeadscopeError, match=f'`form="{form}"`: 3 heads follow fixed patterns'
    ) as raised:
        fix(whole, PATTERNS).save(tmp_path / "fixed", form=form)
    assert str(raised.value).endswith("Expected small.")
    assert not (tmp_path / "fixed").exists()
