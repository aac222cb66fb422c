"""The vectors of a text are those of sentence-transformers, of whole models and of pruned ones that it loads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Model

import headscope
from embedding import TEXTS, embedding, vectors_of, write
from headscope import load
from headscope.model.edits import Ablate
from worded import LONGEST

sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed"
)
MODES = ("mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean")
CLOSE = 1e-5


def theirs(folder: Path, texts: list[str], **options: Any) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        model = sentence_transformers.SentenceTransformer(
            str(folder), device="cpu", local_files_only=True
        )
        return torch.as_tensor(model.encode(texts, show_progress_bar=False, **options))


def assert_same(model: Any, folder: Path, **options: Any) -> None:
    ours, wanted = vectors_of(model, TEXTS), theirs(folder, TEXTS, **options)
    assert ours.shape == wanted.shape
    assert float((ours - wanted).abs().max()) < CLOSE


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_theirs_before_and_after_pruning(
    mode: str, normalize: bool, tmp_path: Path
) -> None:
    folder = embedding(tmp_path / "whole", mode, normalize=normalize, new=normalize)
    model = load(folder)
    assert_same(model, folder)
    plain = headscope.prune(model, "0.1,1.0").model.save(tmp_path / "plain", form="plain")
    whole = vectors_of(model, TEXTS)
    with model.edited(Ablate("0.1,1.0")):
        assert_same(model, plain)
        assert (
            float((vectors_of(model, TEXTS) - whole).abs().max()) > 100 * CLOSE
        )  # or nothing was compared


@pytest.mark.parametrize("activation", ["activation.Tanh", "linear.Identity", "activation.GELU"])
def test_a_dense_layer_is_applied_and_saved(activation: str, tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", "mean", dense=f"torch.nn.modules.{activation}")
    model = load(folder)
    assert_same(model, folder)
    assert_same(load(model.save(tmp_path / "again")), tmp_path / "again")


@pytest.mark.parametrize("mode", ["lasttoken", "mean", "weightedmean"])
def test_a_decoder_is_read_as_it_states(mode: str, tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", mode, kind=GPT2Model)
    model = load(folder)
    assert_same(model, folder)
    plain = headscope.prune(model, "0.1").model.save(tmp_path / "plain", form="plain")
    with model.edited(Ablate("0.1")):
        assert_same(model, plain)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("mode", ["mean", "cls", "max", "weightedmean"])
def test_prompts_stand_before_the_text_and_may_be_left_out_of_pooling(
    mode: str, include: bool, tmp_path: Path
) -> None:
    prompts = {"prompts": {"query": "who is ", "sts": "the dog saw "}, "default_prompt_name": "sts"}
    folder = embedding(tmp_path / "whole", mode, include_prompt=include, prompts=prompts)
    assert_same(load(folder), folder)
    assert_same(load(folder, prompt="query"), folder, prompt_name="query")
    assert_same(load(folder, prompt="a cat , "), folder, prompt="a cat , ")
    assert_same(load(folder, prompt=""), folder, prompt="")
    saved = load(folder, prompt="a cat , ").save(tmp_path / "prompted")
    assert_same(load(saved), saved)
    assert (
        float((vectors_of(load(saved), TEXTS) - vectors_of(load(folder), TEXTS)).abs().max())
        > 100 * CLOSE
    )
    ours = vectors_of(load(folder), TEXTS, role="query")
    assert float((ours - theirs(folder, TEXTS, prompt_name="query")).abs().max()) < CLOSE


def test_longer_texts_are_truncated_as_they_do(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", "mean", length=9)
    with pytest.warns(UserWarning, match=r"texts were truncated to 9 tokens"):
        assert_same(load(folder), folder)
    without = vectors_of(load(embedding(tmp_path / "long", "mean")), TEXTS)
    assert float((without - theirs(folder, TEXTS)).abs().max()) > 100 * CLOSE


def test_lower_case_is_applied(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", "mean")
    write(folder / "sentence_bert_config.json", {"max_seq_length": LONGEST, "do_lower_case": True})
    model, texts = load(folder), ["The OLD cat", "a Dog"]
    assert float((vectors_of(model, texts) - theirs(folder, texts)).abs().max()) < CLOSE


def test_the_transformer_may_be_in_a_directory_of_its_own(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", "cls", at="0_Transformer", length=9)
    model = load(folder)
    assert model.reading.max_length == 9
    assert_same(model, folder)
    assert_same(model, model.save(tmp_path / "again"))
    plain = headscope.prune(model, "0.1").model.save(tmp_path / "plain", form="plain")
    with model.edited(Ablate("0.1")):
        assert_same(model, plain)


def test_the_choices_of_the_user_are_saved(tmp_path: Path) -> None:
    folder = embedding(tmp_path / "whole", "mean")
    model = load(folder, pooling="first")
    assert_same(model, model.save(tmp_path / "again"))
    assert load(tmp_path / "again").reading.pooling == "first"
    for name in ("modules.json", "1_Pooling/config.json"):
        (folder / name).unlink()
    bare = load(folder, pooling="max")
    assert_same(bare, bare.save(tmp_path / "stated"))


@pytest.mark.parametrize("heads", ["0.1", "0.*"])
def test_the_small_form_fails_loudly_there(heads: str, tmp_path: Path) -> None:
    small = headscope.prune(load(embedding(tmp_path / "whole")), heads).model.save(
        tmp_path / "small"
    )
    with pytest.raises(Exception, match=r"(?i)mismatch"):
        theirs(small, TEXTS)
    assert load(small).reading.pooling == "mean"


@pytest.mark.real
def test_minilm(zoo_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = zoo_model("minilm")
    model = load(folder)
    assert_same(model, folder)
    plain = headscope.prune(model, "0.2,3.*,5.1").model.save(tmp_path / "plain", form="plain")
    with model.edited(Ablate("0.2,3.*,5.1")):
        assert_same(model, plain)
    assert float((theirs(plain, TEXTS).norm(dim=-1) - 1).abs().max()) < CLOSE
