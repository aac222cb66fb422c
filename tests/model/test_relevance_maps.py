"""Token maps by relevance: rows add up, causality holds, and a token that alone is read has it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from headscope.errors import HeadscopeError
from headscope.model.relevance import maps
from headscope.model.relevance.maps import relevance_map
from headscope.model.relevance.rules import linearise
from tiny import batch_for, examples, in_double, tiny

CASES: dict[str, Any] = {
    "bert": None,
    "xlnet": None,
    "albert": AutoModelForMaskedLM,
    "gpt2": AutoModelForCausalLM,
    "llama": AutoModelForCausalLM,
    "qwen3": AutoModelForCausalLM,
    "marian": AutoModelForSeq2SeqLM,
    "t5": AutoModelForSeq2SeqLM,
    "roberta": AutoModelForSequenceClassification,
}


def example_for(family: str) -> list[Any]:
    return [next(example for example in examples(family) if len(example.source) == 9)]


@pytest.mark.parametrize("family", CASES)
def test_a_map_has_a_row_a_target_and_is_the_same_one_target_at_a_time(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(family, head=CASES[family])
    batch = batch_for(model, example_for(family))
    whole = relevance_map(model, batch)
    count = (
        1
        if family == "roberta"
        else batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"]).shape[1]
    )
    assert whole.targets == tuple(range(count))
    keys = {"cross", "decoder"} if model.is_encoder_decoder else {model.sites[0].stack}
    assert set(whole.maps) == keys
    for stack, match in whole.maps.items():
        side = (
            "decoder_input_ids" if stack == "decoder" and model.is_encoder_decoder else "input_ids"
        )
        assert match.shape == (2, count, batch.inputs[side].shape[1])
    last = relevance_map(model, batch, targets=[count - 1])
    monkeypatch.setattr(maps, "BATCH_TOKENS", 1)
    single = relevance_map(model, batch)
    for stack, match in whole.maps.items():
        assert np.allclose(single.maps[stack], match, atol=2e-4 * np.abs(whole.outputs).mean())
        assert np.allclose(
            last.maps[stack], match[:, -1:], atol=2e-4 * np.abs(whole.outputs).mean()
        )


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_no_token_after_its_target_is_relevant(family: str) -> None:
    model = tiny(family, head=AutoModelForCausalLM)
    result = relevance_map(model, batch_for(model, example_for(family))).maps["decoder"]
    assert not np.triu(result, k=1).any()
    assert (np.abs(np.tril(result)).sum(axis=2) > 0).all()


def test_without_biases_the_tokens_make_up_the_whole_output() -> None:
    model = in_double(tiny("t5", head=AutoModelForSeq2SeqLM))
    result = relevance_map(model, batch_for(model, example_for("t5")))
    rows = result.maps["cross"][0].sum(axis=1) + result.maps["decoder"][0].sum(axis=1)
    assert np.allclose(rows, result.outputs, rtol=1e-9)


def test_a_bare_encoder_says_its_own_state_of_which_all_parts_make_one() -> None:
    model = tiny("bert")
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    result = relevance_map(model, batch_for(model, example_for("bert")))
    assert np.allclose(result.outputs, 1)
    assert np.allclose(result.maps["encoder"].sum(axis=2), 1, atol=1e-4)


def test_what_no_head_moves_stays_where_it_is() -> None:
    """Without attention a token goes by itself alone."""
    model = tiny("bert")
    with torch.no_grad():
        for layer in model.model.encoder.layer:
            layer.attention.output.dense.weight.zero_()
    result = relevance_map(model, batch_for(model, example_for("bert"))).maps["encoder"]
    for layer in result:
        assert np.allclose(layer, np.diag(np.diag(layer)), atol=1e-7)
        assert (np.abs(np.diag(layer)) > 1e-3).all()


# Bad input


@pytest.mark.parametrize(
    ("targets", "what"), [([9], "position 9"), ([-1], "position -1"), ([], "no position")]
)
def test_a_target_that_is_not_there_is_refused(targets: list[int], what: str) -> None:
    model = tiny("bert")
    with pytest.raises(HeadscopeError, match=what):
        relevance_map(model, batch_for(model, example_for("bert")), targets=targets)


def test_several_sequences_are_refused() -> None:
    model = tiny("bert")
    with pytest.raises(HeadscopeError, match="a batch of 8 sequences"):
        relevance_map(model, batch_for(model, examples("bert")))


def test_a_model_with_several_outputs_is_refused() -> None:
    model = tiny("bert", head=AutoModelForQuestionAnswering)
    with pytest.raises(HeadscopeError, match="BertForQuestionAnswering is not a single number"):
        relevance_map(model, batch_for(model, example_for("bert")))


def test_after_a_refusal_no_rule_is_left() -> None:
    model = tiny("bert")
    with pytest.raises(HeadscopeError), linearise(model, "nothing", None):  # type: ignore[arg-type]
        pass
    assert all(parameter.requires_grad for parameter in model.model.parameters())
