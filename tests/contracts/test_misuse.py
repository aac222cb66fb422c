"""Calls that would give wrong numbers in silence are refused, or do the right thing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BartForCausalLM, BertModel, T5EncoderModel

import headscope
from headscope import Ablate, AttentionModel, HeadscopeError, MaskScores
from headscope.data.batches import collate
from headscope.data.encode import Sequence, Side
from headscope.data.examples import examples_of
from headscope.statistics import select_statistics
from tiny import CLS, SEP, tiny


def test_a_mask_between_tokens_does_not_tell_padding_and_is_refused_when_watching() -> None:
    model = tiny("bert")
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    with (
        torch.inference_mode(),
        model.watched(lambda a: None),
        pytest.raises(HeadscopeError, match="padding"),
    ):
        model(input_ids=torch.tensor([[7, 8, 9, 10, 11, 12]]), attention_mask=mask)


def test_a_sequence_of_padding_alone_is_refused() -> None:
    model = tiny("bert")
    ids = torch.tensor([[7, 8, 9], [7, 8, 9]])
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    with (
        torch.inference_mode(),
        model.watched(lambda a: None),
        pytest.raises(HeadscopeError, match="nothing but padding"),
    ):
        model(input_ids=ids, attention_mask=mask)


def test_a_model_in_training_mode_is_refused() -> None:
    model = tiny("bert")
    model.model.train()
    with pytest.raises(HeadscopeError, match="training mode"):
        model.self_check()


@pytest.mark.usefixtures("safe_bfloat16")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_self_check_passes_in_every_dtype(dtype: torch.dtype) -> None:
    model = tiny("bert")
    model.model.to(dtype)
    assert model.self_check() <= 32 * torch.finfo(dtype).eps


def test_a_score_of_minus_infinity_leaves_the_entropy_defined() -> None:
    model = tiny("bert")
    ids = torch.tensor([[7, 8, 9, 10]])
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    statistics = select_statistics(["entropy"])
    with (
        torch.inference_mode(),
        model.edited(MaskScores(mask)),
        model.watched(*(one.update for one in statistics)),
    ):
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    rows = statistics[0].table()
    assert len(rows) == len(model.heads)
    assert all(0 <= row.value < torch.tensor(4.0).log() for row in rows)


@pytest.mark.parametrize("family", ["bert", "xlnet"])  # XLNet hides padding by -1e30
def test_a_query_with_nothing_left_spreads_over_real_keys_only(family: str) -> None:
    model = tiny(family)
    ids = torch.tensor([[7, 8, 9, 10], [7, 8, 9, 0]])
    padding = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    sums: list[float] = []
    with (
        torch.inference_mode(),
        model.edited(MaskScores(mask)),
        model.watched(lambda a: sums.append(a.weights.sum(dim=-1).min().item())),
    ):
        model(input_ids=ids, attention_mask=padding)
    assert min(sums) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("texts", ["one text", ["single", ("a", "pair")], [("a", "b", "c")]])
def test_texts_of_the_wrong_kind_are_refused(texts: object) -> None:
    with pytest.raises(HeadscopeError, match="texts"):
        examples_of(texts)  # type: ignore[arg-type]


def test_a_decoder_called_alone_is_not_watched_in_silence() -> None:
    model = tiny("t5")
    ids = torch.tensor([[7, 8, 9]])
    states = torch.randn(1, 3, model.model.config.d_model)
    with (
        torch.inference_mode(),
        model.watched(lambda a: None),
        pytest.raises(HeadscopeError, match="not among"),
    ):
        model.model.get_decoder()(input_ids=ids, encoder_hidden_states=states, use_cache=False)


def test_positions_before_the_padding_id_are_not_promised() -> None:
    from headscope.data.encode import model_limit

    model = tiny("roberta", pad_token_id=5)
    assert model_limit(model) == model.model.config.max_position_embeddings - 6


def test_headscope_is_what_its_all_says() -> None:
    assert all(hasattr(headscope, name) for name in headscope.__all__)


def test_the_bundled_pairs_are_refused_as_single_texts() -> None:
    from headscope.data.examples import read_examples

    with pytest.raises(HeadscopeError, match="Add `pairs=True`"):
        list(read_examples(["wikipedia-pairs"]))


def test_the_self_check_looks_at_the_model_without_the_edits_around_it() -> None:
    model = tiny("bert")
    with model.edited(headscope.Ablate(model.heads)):
        assert model.self_check() < 1e-5
        assert [type(edit).__name__ for edit in model.edits] == ["Ablate"]
    assert model.edits == ()


def test_a_batch_is_of_pairs_or_of_single_texts() -> None:
    model = tiny("bart")
    side = Side(ids=[CLS, 9, SEP], words=[-1, 0, -1], segments=[0, 0, 0])
    with pytest.raises(
        HeadscopeError, match=r"^some texts have a target and some have none\. Expected pairs"
    ):
        collate(model, [Sequence(0, side, side), Sequence(1, side)])


@pytest.mark.usefixtures("safe_bfloat16")
def test_a_dtype_that_a_model_cannot_compute_in_is_refused() -> None:
    model = copy.deepcopy(tiny("xlnet").model).to(torch.bfloat16)
    with pytest.raises(
        HeadscopeError,
        match=r"^x: XLNetModel cannot compute in bfloat16 .* Load it with dtype float32",
    ):
        AttentionModel(model, None, name="x")


def test_a_study_of_an_edited_model_says_so(zoo_model: Callable[[str], Path]) -> None:
    model = headscope.load(zoo_model("rxnmapper"))
    with model.edited(Ablate("3.2")):
        study = headscope.analyze(model, texts=["CCO>>CC=O"], statistics=["entropy"])
    assert study.record["model"]["edits"] == [{"kind": "Ablate", "heads": ["encoder.3.2"]}]
    assert study.record["model"]["dtype"] == "float32"


def test_contexts_left_in_another_order_take_away_what_is_theirs() -> None:
    model = tiny("bert")
    inputs = {"input_ids": torch.tensor([[CLS, 9, 10, SEP]])}
    with torch.inference_mode():
        plain = model(**inputs)[0]
        with model.edited(Ablate("1.1")):
            second_alone = model(**inputs)[0]
        first, second = model.edited(Ablate("0.0")), model.edited(Ablate("1.1"))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert repr(model.edits) == "(Ablate(encoder.1.1),)"
        assert torch.equal(model(**inputs)[0], second_alone)
        second.__exit__(None, None, None)
        assert torch.equal(model(**inputs)[0], plain)


def test_the_encoder_of_an_encoder_decoder_stands_alone() -> None:
    config = copy.deepcopy(tiny("t5").model.config)
    model = AttentionModel(T5EncoderModel(config).eval(), None)
    assert {site.stack for site in model.sites} == {"encoder"}
    assert model.self_check() < 1e-5


def test_the_decoder_of_an_encoder_decoder_stands_alone() -> None:
    config = copy.deepcopy(tiny("bart").model.config)
    model = AttentionModel(BartForCausalLM(config).eval(), None)
    assert {site.stack for site in model.sites} == {"decoder"}
    assert model.self_check() < 1e-5


@pytest.mark.parametrize("setting", ["add_cross_attention", "is_decoder"])
def test_a_decoder_made_of_an_encoder_is_refused(setting: str) -> None:
    config = copy.deepcopy(tiny("bert").model.config)
    setattr(config, setting, True)
    config.is_decoder = True
    with pytest.raises(HeadscopeError, match=r"^x: BertModel is configured as a decoder"):
        AttentionModel(BertModel(config).eval(), None, name="x")
