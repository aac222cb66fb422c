"""token_map and look from a text to their numbers, on small models that read words."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

import headscope
from headscope.analysis.lens_maps import LENSES
from headscope.analysis.token_maps import TOKEN_LENSES, encode_input
from headscope.errors import HeadscopeError
from headscope.model.relevance.maps import relevance_map
from worded import translator, worded

TEXT, SECOND = "the old cat sat on the mat .", "a dog ran ."


@pytest.mark.parametrize("by", TOKEN_LENSES)
def test_every_token_map_has_its_tokens_and_says_how_it_was_made(by: str) -> None:
    result = headscope.token_map(worded(BertModel), TEXT, by=by)
    values = result.maps["encoder"]
    assert values.shape == (2, len(result.forms), 10, 10)
    assert result.tokens["encoder"][0] == ("[CLS]", *TEXT.split(), "[SEP]")
    assert result.how.endswith(".")
    if result.shares:
        np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-5)
    table = result.table()
    row = table[
        (table.layer == 1)
        & (table.form == result.forms[-1])
        & (table["query"] == 3)
        & (table.key == 7)
    ]
    assert row.value.item() == values[1, -1, 3, 7]
    assert (row.query_token.item(), row.key_token.item()) == ("cat", "mat")


@pytest.mark.parametrize("by", TOKEN_LENSES)
def test_every_token_map_of_a_translation(by: str) -> None:
    result = headscope.token_map(translator(), TEXT, SECOND, by=by)
    queries, keys = result.tokens["cross"]
    assert keys == (*TEXT.split(), "[SEP]")
    assert result.maps["cross"].shape[2:] == (len(queries), len(keys))
    assert np.abs(result.maps["cross"]).max() > 0


def test_rollout_has_its_baseline_next_to_it_where_tokens_do_not_see_all() -> None:
    assert headscope.token_map(worded(BertModel), TEXT, by="rollout").forms == ("all heads",)
    result = headscope.token_map(translator(), TEXT, SECOND, by="rollout")
    assert result.forms == ("attention", "uniform attention")
    together = result.maps["decoder"].sum(axis=-1) + result.maps["cross"].sum(axis=-1)
    np.testing.assert_allclose(together, 1, atol=1e-5)
    row = result.maps["decoder"][0, :, 2, :3]  # after the first layer half of it is the source's
    np.testing.assert_allclose(row[1], [1 / 12, 1 / 12, 1 / 3], atol=1e-6)
    assert np.abs(row[0] - row[1]).max() > 1e-3
    assert "uniform" in result.how


def test_relevance_is_that_of_both_rules_side_by_side() -> None:
    model = worded(BertForMaskedLM)
    result = headscope.token_map(model, TEXT, by="relevance")
    batch = encode_input(model, TEXT, None)
    assert result.forms == ("voita", "attnlrp")
    for form, rules in enumerate(result.forms):
        wanted = relevance_map(model, batch, rules=rules).maps["encoder"]  # type: ignore[arg-type]
        np.testing.assert_allclose(result.maps["encoder"][:, form], wanted, rtol=1e-4, atol=1e-5)


def test_relevance_of_a_class_has_one_row() -> None:
    result = headscope.token_map(worded(BertForSequenceClassification), TEXT, by="relevance")
    assert "token 0 has the one row that is filled" in result.how
    assert (result.maps["encoder"][:, :, 1:] == 0).all()
    assert np.abs(result.maps["encoder"][:, :, 0]).max() > 0


def test_the_target_chooses_what_gradients_are_taken_of() -> None:
    model = worded(BertForMaskedLM)
    single = headscope.token_map(model, TEXT, by="gradient-rollout", target=3)
    last = single.maps["encoder"][0, 0]
    assert "token 3" in single.how
    assert (last > 0).any()
    assert not np.array_equal(
        last, headscope.token_map(model, TEXT, by="gradient-rollout").maps["encoder"][0, 0]
    )


def test_relevance_of_a_source_alone_is_refused() -> None:
    with pytest.raises(
        HeadscopeError, match="lens relevance: translator has no output for a source alone"
    ):
        headscope.token_map(translator(), TEXT, by="relevance")


def test_an_unknown_map_is_refused_with_the_choices() -> None:
    with pytest.raises(
        HeadscopeError, match=r'by: "rolout" is not a token map\. Expected .*did you mean "rollout"'
    ):
        headscope.token_map(worded(BertModel), TEXT, by="rolout")


def test_look_has_every_lens_with_the_numbers_of_its_own() -> None:
    model = worded(BertForMaskedLM)
    look = headscope.look(model, TEXT, lens=LENSES)
    assert [lens.name for lens in look.lenses] == list(LENSES)
    by_name = {lens.name: lens.stacks[0].weights for lens in look.lenses}
    for name in TOKEN_LENSES:
        np.testing.assert_array_equal(
            by_name[name], headscope.token_map(model, TEXT, by=name).maps["encoder"]
        )
    assert by_name["gradient"].min() < 0 < by_name["gradient"].max()
    np.testing.assert_allclose(by_name["raw"].sum(axis=-1), 1, atol=1e-5)
    assert len(look.page()) < 500_000
    assert look._repr_html_().startswith("<iframe")
    assert model.look(TEXT, lens=LENSES).page() == look.page()


def test_a_head_s_gradients_add_up_to_what_its_output_adds() -> None:
    """Σ A·∂F/∂A is z·∂F/∂z, whatever the model: here by a gate behind the head."""
    import torch

    from headscope.model.edits import Gate
    from headscope.model.scalar_output import scalar_output

    model = worded(BertForMaskedLM)
    cells = headscope.look(model, TEXT, lens="gradient").stacks[0].weights
    gates = {head: torch.ones((), requires_grad=True) for head in model.heads}
    with model.edited(Gate(gates)):  # type: ignore[arg-type]
        scalar_output(model, encode_input(model, TEXT, None))[0].backward()
    for head, gate in gates.items():
        assert gate.grad is not None
        assert cells[head.layer, head.head].sum() == pytest.approx(
            float(gate.grad), rel=1e-3, abs=1e-4
        )


def test_a_norm_is_weight_times_length() -> None:
    model = worded(BertModel)
    look = headscope.look(model, TEXT, lens="raw,norm")
    raw, norm = (lens.stacks[0].weights.astype(float) for lens in look.lenses)
    lengths = norm / raw  # the same in every row: how long a key's value is through the head
    np.testing.assert_allclose(
        lengths, np.broadcast_to(lengths[:, :, :1], lengths.shape), rtol=1e-3
    )


def test_knock_out_of_texts_is_a_study_of_rows() -> None:
    study = headscope.ablate_edges(worded(BertModel), texts=[TEXT, SECOND], statistics=["special"])
    wanted = {"value-zeroing", "knock-out", "knock-out-gone", "special@value-zeroing"}
    assert wanted <= set(study.heads["statistic"])
    assert study.record["knock_out"]["texts"] == 2
    assert (study.heads["value"] >= 0).all()
