"""A cut model goes to disk and comes back, in each of its forms; what was tampered with does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, BertModel, PreTrainedModel

import headscope
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.checkpoint import read_config
from headscope.model.cut_checkpoint import read_cut_weights
from headscope.model.manifest import Cut, checksum, read_manifest
from headscope.model.saving import write_model
from headscope.model.surgery import expand, prune, removed_heads, units
from sampling import slow
from tiny import FAMILIES, batch_for, examples, tiny


def states(model: AttentionModel, family: str) -> Tensor:
    batch = batch_for(model, examples(family))
    with torch.inference_mode():
        result = model(batch)[0]
    mask = batch.inputs.get("decoder_attention_mask", batch.inputs.get("attention_mask"))
    return result[mask.bool()] if mask is not None and result.shape[:2] == mask.shape else result


def some_of(model: AttentionModel) -> AttentionModel:
    """Without the first unit of surgery, and where that can be without a whole layer."""
    everyone = units(model)
    last = model.sites[-1]
    gone = [everyone[0]]
    if len({head.site for head in everyone[0]}) == 1:
        gone += [unit for unit in everyone[1:] if unit[0].site == last]
    return prune(model, [head for unit in gone for head in unit])


def reread(
    folder: Path,
    model: AttentionModel,
    model_class: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> AttentionModel:
    """As `headscope.load` does, but with the made-up tokenizer."""
    manifest = read_manifest(folder)
    assert manifest is not None
    result, untrained, _ = read_cut_weights(
        folder, read_config(folder), manifest, model_class, dtype
    )
    cut = Cut(manifest.origin, manifest.kept, manifest.silent)
    again = AttentionModel(result, model.tokenizer, name="read again", cut=cut)
    again.path, again.untrained = folder, untrained
    return again


@pytest.fixture
def without_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up tokenizers cannot be saved."""
    from tiny import FakeTokenizer

    monkeypatch.setattr(FakeTokenizer, "save_pretrained", lambda self, folder: None, raising=False)


HALF = [("bert", torch.bfloat16), ("llama", torch.bfloat16), ("t5", torch.float16)]


@pytest.mark.usefixtures("safe_bfloat16")
@pytest.mark.parametrize(("family", "dtype"), HALF)
def test_half_precision_is_that_of_transformers_before_and_after_a_cut(
    family: str, dtype: torch.dtype, tmp_path: Path, without_tokenizer: None
) -> None:
    """Llama's frequencies and T5's last projections stay in single precision, and the original is as it was."""
    made = tiny(family)
    made.model.save_pretrained(tmp_path / "whole")
    model = AttentionModel(
        type(made.model).from_pretrained(tmp_path / "whole", dtype=dtype), made.tokenizer
    )

    def tensors(item: PreTrainedModel) -> dict[str, Tensor]:
        return dict([*item.named_parameters(), *item.named_buffers()])

    before = {name: tensor.clone() for name, tensor in tensors(model.model).items()}
    kinds = {name: tensor.dtype for name, tensor in before.items()}
    assert dtype in kinds.values()
    assert torch.float32 in kinds.values() or family == "bert"
    cut = some_of(model)
    assert {name: tensor.dtype for name, tensor in tensors(model.model).items()} == kinds
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(model.model).items())
    write_model(cut, tmp_path / "cut")
    back = reread(tmp_path / "cut", cut, dtype=dtype)
    for item in (cut.model, back.model, expand(cut)):
        assert all(tensor.dtype == kinds[name] for name, tensor in tensors(item).items())
    assert torch.equal(states(back, family), states(cut, family))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_small_form_comes_back_to_the_last_bit(
    family: str, tmp_path: Path, without_tokenizer: None
) -> None:
    cut = some_of(tiny(family))
    write_model(cut, tmp_path)
    back = reread(tmp_path, cut)
    assert back.heads == cut.heads
    assert removed_heads(back) == removed_heads(cut)
    assert torch.equal(states(back, family), states(cut, family))
    again = tmp_path / "again"
    again.mkdir()
    write_model(back, again)
    assert (again / "model.safetensors").read_bytes() == (
        tmp_path / "model.safetensors"
    ).read_bytes()
    assert (again / "cut.json").read_bytes() == (tmp_path / "cut.json").read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_plain_form_is_read_by_transformers_itself(
    family: str, tmp_path: Path, without_tokenizer: None
) -> None:
    model = tiny(family)
    cut = some_of(model)
    write_model(cut, tmp_path, form="plain")
    vanilla = AutoModel.from_pretrained(tmp_path).eval()
    assert type(vanilla) is type(model.model)
    shapes = [tuple(p.shape) for p in vanilla.parameters()]
    assert shapes == [tuple(p.shape) for p in model.model.parameters()]
    back = AttentionModel(vanilla, model.tokenizer)
    assert torch.allclose(states(back, family), states(cut, family), atol=1e-5)


def test_a_small_model_is_smaller(tmp_path: Path, without_tokenizer: None) -> None:
    model = tiny("bert")
    cut = prune(model, "0.1,1.*")
    write_model(cut, tmp_path)
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    assert shapes["encoder.layer.0.attention.self.query.weight"] == (24, 32)
    assert shapes["encoder.layer.0.attention.output.dense.weight"] == (32, 24)
    assert shapes["encoder.layer.1.attention.self.value.bias"] == (0,)
    assert shapes["encoder.layer.1.attention.output.dense.bias"] == (32,)


def test_transformers_does_not_take_a_small_model_for_a_whole_one(
    tmp_path: Path, without_tokenizer: None
) -> None:
    write_model(prune(tiny("bert"), "0.1"), tmp_path)
    with pytest.raises(RuntimeError, match="mismatch"):
        BertModel.from_pretrained(tmp_path)


def test_a_cut_model_can_be_cut_again_after_loading(
    tmp_path: Path, without_tokenizer: None
) -> None:
    model = tiny("t5")
    write_model(prune(model, "encoder.0.1,decoder.0.*"), tmp_path)
    twice = prune(reread(tmp_path, model), "encoder.0.2,cross.1.0")
    once = prune(model, "encoder.0.1-2,decoder.0.*,cross.1.0")
    assert twice.heads == once.heads
    assert twice.cut is not None
    assert once.cut is not None
    assert twice.cut.origin == once.cut.origin
    assert torch.equal(states(twice, "t5"), states(once, "t5"))


def test_a_head_can_be_put_on_a_cut_encoder_and_taken_off(
    tmp_path: Path, without_tokenizer: None
) -> None:
    cut = prune(tiny("bert"), "0.1,1.*")
    write_model(cut, tmp_path)
    topped = reread(tmp_path, cut, "AutoModelForSequenceClassification")
    assert [name for name in topped.untrained if "pooler" not in name] == [
        "classifier.bias",
        "classifier.weight",
    ]
    assert all(bool(p.isfinite().all()) for p in topped.model.parameters())
    assert torch.equal(
        topped.model.base_model.embeddings.word_embeddings.weight,
        cut.model.embeddings.word_embeddings.weight,
    )
    folder = tmp_path / "topped"
    folder.mkdir()
    write_model(topped, folder)
    bare = reread(folder, cut, "AutoModel")
    assert torch.equal(states(bare, "bert"), states(cut, "bert"))


def test_tied_weights_are_stored_once_and_tied_again(
    tmp_path: Path, without_tokenizer: None
) -> None:
    from transformers import AutoModelForMaskedLM

    cut = prune(tiny("bert", head=AutoModelForMaskedLM), "0.1")
    write_model(cut, tmp_path)
    back = reread(tmp_path, cut)
    assert back.untrained == ()
    assert (
        back.model.cls.predictions.decoder.weight
        is back.model.bert.embeddings.word_embeddings.weight
    )


@pytest.mark.parametrize(
    "family",
    ["bert", "albert", "distilbert", "electra", "modernbert", "roberta", "mpnet", "xlm-roberta"],
)
def test_a_language_model_keeps_its_head(
    family: str, tmp_path: Path, without_tokenizer: None
) -> None:
    """Its weights are the embeddings', its bias is not: nothing of it is made anew."""
    from transformers import AutoModelForMaskedLM

    cut = some_of(tiny(family, head=AutoModelForMaskedLM))
    write_model(cut, tmp_path)
    back = reread(tmp_path, cut)
    for name, tensor in cut.model.state_dict().items():
        assert torch.equal(back.model.state_dict()[name], tensor), name


def test_a_model_that_was_not_cut_is_written_as_transformers_does(
    tmp_path: Path, without_tokenizer: None
) -> None:
    write_model(tiny("bert"), tmp_path)
    assert not (tmp_path / "cut.json").exists()
    assert BertModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "family", ["bert", *map(slow, ["gpt2", "albert", "distilbert", "roberta", "mpnet", "bart"])]
)
def test_the_onnx_form_gives_what_torch_gives(
    family: str, tmp_path: Path, without_tokenizer: None
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    import onnxruntime

    cut = some_of(tiny(family))
    write_model(cut, tmp_path, form="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    batch = dict(batch_for(cut, examples(family)).inputs)
    if "token_type_ids" in {one.name for one in session.get_inputs()}:  # segments are told apart
        batch["token_type_ids"] = (
            (torch.arange(batch["input_ids"].shape[1]) > 4).long().expand_as(batch["input_ids"])
        )
    assert ("token_type_ids" in batch) == (family in ("bert", "albert"))
    wanted = cut(batch)[0].detach().numpy()
    feed = {one.name: batch[one.name].numpy() for one in session.get_inputs()}
    mask = batch.get("decoder_attention_mask", batch["attention_mask"]).bool().numpy()
    assert abs(session.run(None, feed)[0] - wanted)[mask].max() < 1e-4


# What was tampered with


def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    write_model(prune(tiny("bert"), "0.1,1.*"), folder)
    return folder


def generated(folder: Path) -> str:
    with pytest.raises(HeadscopeError) as raised:
        headscope.load(folder)
    return str(raised.value)


def test_a_torn_manifest_is_refused(tmp_path: Path, without_tokenizer: None) -> None:
    folder = small(tmp_path)
    path = folder / "cut.json"
    path.write_text(path.read_text()[:200])
    assert "cut.json: not readable" in generated(folder)


def test_an_edited_manifest_is_refused(tmp_path: Path, without_tokenizer: None) -> None:
    folder = small(tmp_path)
    path = folder / "cut.json"
    content = json.loads(path.read_text())
    content["kept"]["encoder.0"] = [0, 1, 2]
    path.write_text(json.dumps(content))
    assert "cut.json: was edited: its checksum differs" in generated(folder)


@pytest.mark.parametrize("key", ["form", "weights", "chosen"])
def test_a_manifest_without_a_key_is_refused(
    tmp_path: Path, without_tokenizer: None, key: str
) -> None:
    folder = small(tmp_path)
    path = folder / "cut.json"
    content = json.loads(path.read_text())
    del content[key], content["sum"]
    path.write_text(json.dumps(content | {"sum": checksum(content)}))
    assert f'cut.json: not readable (key "{key}" is missing)' in generated(folder)


def test_other_weights_are_refused(tmp_path: Path, without_tokenizer: None) -> None:
    folder = small(tmp_path)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    assert "cut.json: model.safetensors is not the file this was written for" in generated(folder)


def test_a_directory_that_is_there_is_not_written_over(
    tmp_path: Path, without_tokenizer: None
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    cut = prune(tiny("bert"), "0.1")
    with pytest.raises(HeadscopeError, match="neither a pruned model nor empty"):
        cut.save(tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    with pytest.raises(HeadscopeError, match='"tiny" is not a form'):
        cut.save(tmp_path / "new", form="tiny")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_plain_form_needs_no_headscope(tmp_path: Path, without_tokenizer: None) -> None:
    """In a process that cannot import headscope."""
    cut = prune(tiny("bert"), "0.1,1.*")
    cut.save(tmp_path / "plain", form="plain")
    batch = batch_for(cut, examples("bert"))
    torch.save(dict(batch.inputs), tmp_path / "inputs.pt")
    code = """
import sys, torch
sys.modules["headscope"] = None
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1]).eval()
with torch.inference_mode():
    torch.save(model(**torch.load(sys.argv[2]))[0], sys.argv[3])
"""
    paths = [str(tmp_path / name) for name in ("plain", "inputs.pt", "outputs.pt")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, capture_output=True)
    mask = batch.inputs["attention_mask"].bool()
    assert torch.allclose(torch.load(paths[2])[mask], states(cut, "bert"), atol=1e-5)


def test_a_classifier_keeps_its_labels(tmp_path: Path, without_tokenizer: None) -> None:
    model = tiny("bert", head=AutoModelForSequenceClassification, num_labels=3)
    write_model(prune(model, "1.0"), tmp_path)
    assert reread(tmp_path, model).model.config.num_labels == 3


@pytest.mark.parametrize("form", ["small", "plain"])
def test_what_a_model_says_when_it_generates_comes_back_too(form: str, tmp_path: Path) -> None:
    from worded import translator

    model = translator()
    fresh = type(model.model)(model.model.config).model
    for side in (
        "encoder",
        "decoder",
    ):  # sines, which transformers does not save: those of the tests are chance
        positions = getattr(model.model.model, side).embed_positions
        positions.load_state_dict(getattr(fresh, side).embed_positions.state_dict())
    model.model.generation_config.update(min_new_tokens=5, max_new_tokens=7, num_beams=2)
    cut = prune(model, "cross.0.0")
    cut.save(tmp_path / form, form=form)
    again = headscope.load(tmp_path / form, model_class="AutoModelForSeq2SeqLM")
    inputs = model.tokenizer(["the cat"], return_tensors="pt")
    generated = [one.model.generate(**inputs).tolist() for one in (cut, again)]
    assert generated[0] == generated[1]
    assert again.model.generation_config.num_beams == 2
