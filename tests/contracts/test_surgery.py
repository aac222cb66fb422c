"""A cut model is the ablated model, on every family: whichever heads go, in whatever order, also all of a layer."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from headscope import Ablate, Head, HeadSet
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.surgery import prune, removed_heads, units
from sampling import representative
from tiny import (
    CASES,
    DECODERS,
    ENCODER_DECODERS,
    FAMILIES,
    batch_for,
    examples,
    family_of_case,
    shared,
    tiny,
)

SHARED = ("albert", "xlnet")  # one module at several sites
GROUPED = ("llama", "mistral", "qwen2", "qwen3")  # query heads that share keys and values


def exactly(family: str) -> AttentionModel:
    """In float64, where the family can compute in it."""
    model = tiny(family)
    if family != "xlnet":
        model.model.double()
    return model


def tolerance(model: AttentionModel) -> float:
    return 1e-6 if model.model.dtype == torch.float64 else 1e-5


def outputs(model: AttentionModel, case: str, side: str = "right") -> Tensor:
    """The last states at real tokens, on a padded batch."""
    batch = batch_for(model, examples(case), side)
    with torch.inference_mode():
        states = model(batch)[0]
    mask = batch.inputs.get("decoder_attention_mask", batch.inputs.get("attention_mask"))
    return states[mask.bool()] if mask is not None and states.shape[:2] == mask.shape else states


def chosen(model: AttentionModel, seed: int) -> list[Head]:
    """Some of the model's units of surgery: at least one, not all."""
    chance = random.Random(seed)
    everyone = units(model)
    count = chance.randrange(1, len(everyone))
    return [head for unit in chance.sample(everyone, count) for head in unit]


def ablated(model: AttentionModel, heads: list[Head], case: str) -> Tensor:
    with model.edited(Ablate(heads)):
        return outputs(model, case)


def differ(first: Tensor, other: Tensor) -> float:
    return float((first - other).abs().max())


@pytest.mark.product
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_the_cut_model_is_the_ablated_one(case: str, seed: int) -> None:
    model = exactly(family_of_case(case))
    heads = chosen(model, seed)
    cut = prune(model, heads)
    assert differ(outputs(cut, case), ablated(model, heads, case)) < tolerance(model)
    assert cut.heads == tuple(head for head in model.heads if head not in heads)
    assert sum(p.numel() for p in cut.model.parameters()) < sum(
        p.numel() for p in model.model.parameters()
    )


@pytest.mark.parametrize("case", CASES)
def test_a_layer_may_lose_all_its_heads(case: str) -> None:
    model = exactly(family_of_case(case))
    if family_of_case(case) == "albert":
        pytest.skip(
            "one module in all layers: losing all its heads is losing all heads of the model"
        )
    site = model.sites[-1]
    heads = [
        head for unit in units(model) if any(head.site == site for head in unit) for head in unit
    ]
    cut = prune(model, heads)
    assert differ(outputs(cut, case), ablated(model, heads, case)) < tolerance(model)
    assert site in cut.sites
    assert not [head for head in cut.heads if head.site == site]
    cut.self_check()


@pytest.mark.parametrize("family", representative(FAMILIES))
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000))
def test_two_cuts_are_one_in_either_order(family: str, seed: int) -> None:
    model = exactly(family)
    groups = [list(unit) for unit in units(model)]
    random.Random(seed).shuffle(groups)
    if len(groups) < 3:
        return
    middle = random.Random(seed).randrange(1, len(groups) - 1)
    single = [head for unit in groups[:middle] for head in unit]
    other = [head for unit in groups[middle:-1] for head in unit]
    both = prune(model, single + other)
    for first, second in ((single, other), (other, single)):
        twice = prune(prune(model, first), second)
        assert twice.heads == both.heads
        for (name, mine), theirs in zip(
            twice.model.named_parameters(), both.model.parameters(), strict=True
        ):
            assert torch.equal(mine, theirs), name
        assert twice.cut is not None
        assert both.cut is not None
        assert twice.cut.origin == both.cut.origin


@pytest.mark.parametrize("case", CASES)
def test_heads_of_a_cut_model_keep_their_numbers_when_edited_and_watched(case: str) -> None:
    model = exactly(family_of_case(case))
    everyone = units(model)
    gone, requested = list(everyone[0]), list(everyone[-1])
    cut = prune(model, gone)
    with cut.edited(Ablate(requested)):
        result = outputs(cut, case)
    assert differ(result, ablated(model, gone + requested, case)) < tolerance(model)
    before, after = ({}, {})
    for watched, kept in ((model, before), (cut, after)):

        def see(attention, kept=kept) -> None:  # type: ignore[no-untyped-def]
            for index, head in enumerate(attention.site.heads(attention.weights.shape[1])):
                kept.setdefault(head, attention.weights[:, index].clone())

        with watched.watched(see), torch.inference_mode():
            watched(batch_for(watched, examples(case)[:1]))
    first = min(head.layer for head in requested)
    same = [head for head in after if head.layer == 0 and head.stack in ("encoder", "decoder")]
    assert first > 0 or len(everyone) <= 4
    assert same
    for head in same:
        assert differ(after[head], before[head]) < tolerance(model), head


@pytest.mark.parametrize("family", DECODERS)
def test_a_cut_decoder_says_the_same_with_a_cache(family: str) -> None:
    model = tiny(family, head=AutoModelForCausalLM)
    cut = prune(model, chosen(model, 1))
    ids = torch.tensor([examples(family)[0].source])
    with torch.inference_mode():
        whole = cut.model(ids, use_cache=False).logits[:, -1]
        start = cut.model(ids[:, :-1], use_cache=True)
        step = cut.model(ids[:, -1:], past_key_values=start.past_key_values, use_cache=True).logits[
            :, -1
        ]
    assert differ(whole, step) < 1e-4


@pytest.mark.parametrize("family", DECODERS)
def test_a_layer_without_heads_counts_the_tokens_of_a_cache(family: str) -> None:
    """Lengths are read from the first layer's part of it: were nothing there, positions would begin anew."""
    cut = prune(tiny(family, head=AutoModelForCausalLM), layers=[0])
    ids = torch.tensor([examples(family)[3].source])
    with torch.inference_mode():
        whole = cut.model(ids, use_cache=False).logits[:, -1]
        start = cut.model(ids[:, :-1], use_cache=True)
        assert start.past_key_values.get_seq_length() == ids.shape[1] - 1
        step = cut.model(ids[:, -1:], past_key_values=start.past_key_values, use_cache=True).logits[
            :, -1
        ]
    assert differ(whole, step) < 1e-4


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_translator_without_its_first_layer_says_the_same_with_a_cache(family: str) -> None:
    cut = prune(tiny(family, head=AutoModelForSeq2SeqLM), layers="decoder.0,cross.0,encoder.0")
    requested = {
        "input_ids": batch_for(cut, examples(family)[:1]).inputs["input_ids"],
        "max_new_tokens": 5,
    }
    with torch.inference_mode():
        actual = [
            cut.model.generate(**requested, num_beams=2, do_sample=False, use_cache=way)
            for way in (True, False)
        ]
    assert torch.equal(*actual)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_cut_translator_says_the_same_with_a_cache(family: str) -> None:
    model = tiny(family, head=AutoModelForSeq2SeqLM)
    cut = prune(model, chosen(model, 2))
    batch = batch_for(cut, examples(family)[:1])
    requested = {
        "input_ids": batch.inputs["input_ids"],
        "max_new_tokens": 5,
        "do_sample": False,
        "num_beams": 2,
    }
    with torch.inference_mode():
        assert torch.equal(
            cut.model.generate(**requested, use_cache=True),
            cut.model.generate(**requested, use_cache=False),
        )


@pytest.mark.parametrize("family", ["bert", "t5", "gpt2", "llama", "albert"])
def test_a_cut_model_trains(family: str) -> None:
    cut = prune(tiny(family), chosen(tiny(family), 3))
    cut.model.train()
    cut(batch_for(cut, examples(family)))[0].square().sum().backward()
    assert all(p.grad is None or p.grad.shape == p.shape for p in cut.model.parameters())
    assert sum(p.grad is not None and bool(p.grad.any()) for p in cut.model.parameters()) > 5


def test_the_original_is_untouched() -> None:
    model = shared("bert")
    before = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    prune(model, "0.1,1.*")
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.model.state_dict().items()
    )
    assert len(model.heads) == 8


def test_whole_layers_go_by_their_numbers() -> None:
    model = shared("bart")
    cut = prune(model, layers="encoder.1,cross.0")
    assert str(removed_heads(cut)) == "cross.0.*,encoder.1.*"
    for layers in (1, "1", [1], ["1"]):
        assert prune(shared("bert"), layers=layers).heads == prune(shared("bert"), "1.*").heads


@pytest.mark.parametrize("family", SHARED)
def test_shared_heads_go_together_or_not_at_all(family: str) -> None:
    model = shared(family)
    with pytest.raises(HeadscopeError, match="cannot be cut alone: layers share their weights"):
        prune(model, [model.heads[0]])


def test_albert_says_how_to_write_it() -> None:
    with pytest.raises(HeadscopeError) as raised:
        prune(shared("albert"), "1.2")
    assert "0.2,1.2" in str(raised.value)
    assert prune(shared("albert"), "*.2").heads == tuple(
        head for head in shared("albert").heads if head.head != 2
    )


@pytest.mark.parametrize("family", GROUPED)
def test_query_heads_go_with_the_keys_they_share(family: str) -> None:
    model = shared(family)
    with pytest.raises(HeadscopeError, match="query heads share a key and value head"):
        prune(model, "0.1")
    cut = prune(model, "0.0-1")
    assert cut.model.get_submodule("layers.0.self_attn.k_proj").weight.shape[0] == 8
    assert prune(cut, "0.2-3").heads == tuple(head for head in model.heads if head.layer == 1)


REFUSED = {
    "9.0": 'heads "9.0": "9.0" is not in this model',
    "0.1,0.0-2": 'heads "0.1,0.0-2": encoder.0.1 is given twice',
    "*.3-9": 'heads "*.3-9": "*.3-9" is not in this model',
    "*.*": "`heads`: these are all heads of the model",
    "": 'heads "": "" does not name a head',
}


@pytest.mark.parametrize("heads", REFUSED)
def test_what_cannot_be_cut_is_refused(heads: str) -> None:
    with pytest.raises(HeadscopeError) as raised:
        prune(shared("bert"), heads)
    assert REFUSED[heads] in str(raised.value)


def test_what_is_gone_cannot_be_cut_again() -> None:
    cut = prune(shared("bert"), "0.1")
    with pytest.raises(HeadscopeError, match=r"encoder\.0\.1 is already gone"):
        prune(cut, "0.1")
    assert HeadSet("0.*", among=prune(cut, "0.0").heads)
    assert not [head for head in prune(cut, "0.*").heads if head.layer == 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to remove"),
        ({"heads": "0.1", "layers": "1"}, "heads and layers at once"),
        ({"heads": 3}, "heads: 3 does not name a head"),
        (
            {"heads": [Head("encoder", 0, 1), Head("encoder", 0, 1)]},
            r"`heads`: encoder\.0\.1 is given twice",
        ),
        (
            {"layers": "9"},
            r'layers: "9" has no heads in this model\. Expected encoder\.0, encoder\.1',
        ),
    ],
)
def test_what_names_no_head_to_cut_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError, match=f"^{message}"):
        prune(shared("bert"), **arguments)


def test_nothing_is_cut_inside_an_edit() -> None:
    model = tiny("bert")
    with (
        model.edited(Ablate("0.0")),
        pytest.raises(HeadscopeError, match="being watched or edited"),
    ):
        prune(model, "0.1")


def test_a_cut_that_went_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.model import surgery

    def wrong(core, projection, places, heads, group):  # type: ignore[no-untyped-def]
        return slices(
            core, projection, [(position + 1) % heads for position in places], heads, group
        )

    slices = surgery.head_slices
    monkeypatch.setattr(surgery, "head_slices", wrong)
    with pytest.raises(HeadscopeError, match="differs from the edited one"):
        prune(tiny("bert"), "0.1")
