"""Lenses in a study: names, tables, losses by kind of head, what is refused, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers import AutoModelForSequenceClassification as Classifier

import headscope
from headscope.analysis.label_free_losses import loss_of
from headscope.analysis.separators import verdicts
from headscope.config.names import LENSES
from headscope.config.parsing import lens_list
from headscope.errors import HeadscopeError, choices
from headscope.study.lens_agreement import furthest_apart, lens_agreement
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from tiny import batch_for, examples, tiny

# Losses


def test_a_translation_is_judged_by_the_tokens_that_follow_and_its_end() -> None:
    model = tiny("marian", head=AutoModelForSeq2SeqLM)
    batch = batch_for(model, examples("marian"))
    losses = loss_of(model, pairs=True).of(model, batch)
    logits = model(batch).logits.log_softmax(dim=-1)
    for row in range(len(losses)):
        count = int(batch.inputs["decoder_attention_mask"][row].sum())
        ids = [
            *batch.inputs["decoder_input_ids"][row, 1:count].tolist(),
            model.tokenizer.eos_token_id,
        ]
        expected = -sum(float(logits[row, index, token]) for index, token in enumerate(ids)) / count
        assert float(losses[row]) == pytest.approx(expected, rel=1e-5)


def test_a_causal_model_is_judged_by_the_next_token() -> None:
    model = tiny("gpt2", head=AutoModelForCausalLM)
    batch = batch_for(model, examples("gpt2", lengths=((9, 4), (5, None))))
    losses = loss_of(model, pairs=False).of(model, batch)
    logits = model(batch).logits.log_softmax(dim=-1)
    ids = batch.inputs["input_ids"]
    expected = -sum(float(logits[1, position, ids[1, position + 1]]) for position in range(4)) / 4
    assert float(losses[1]) == pytest.approx(expected, rel=1e-5)


def test_a_classifier_is_held_to_its_own_class() -> None:
    model = tiny("bert", head=Classifier, num_labels=3)
    batch = batch_for(model, examples("bert"))
    losses = loss_of(model, pairs=False).of(model, batch)
    expected = -model(batch).logits.double().log_softmax(dim=-1).amax(dim=-1)
    torch.testing.assert_close(losses, expected)


def test_a_classifier_that_is_nearly_certain_still_has_a_gradient() -> None:
    """In float32 1 - p would be 0 from a margin of 17 on, and with it every derivative."""
    model = tiny("bert", head=Classifier, num_labels=3)
    with torch.no_grad():
        model.model.classifier.bias.copy_(torch.tensor([25.0, 0.0, 0.0]))
    losses = loss_of(model, pairs=False).of(model, batch_for(model, examples("bert")))
    losses.sum().backward()
    assert 0 < float(losses.detach().max()) < 1e-9
    assert (
        float(model.model.classifier.weight.grad[0].abs().max()) > 0
    )  # the likely class, by what is left of 1 - p


def test_without_a_head_two_texts_are_compared_with_their_lengths_held_fixed() -> None:
    model = tiny("bert")
    batch = batch_for(model, examples("bert", lengths=((9, 4), (9, 4))))
    segments = torch.tensor([[0] * 5 + [1] * 4] * 2)
    layout = replace(batch.layout, encoder=replace(batch.layout.encoder, segments=segments))
    batch = replace(batch, layout=layout)
    loss = loss_of(model, pairs=True)
    assert "no head" in loss.sentence
    states = model(batch)[0]
    content = layout.encoder.content
    means = [states[0][(segments[0] == side) & content[0]].mean(dim=0) for side in (0, 1)]
    result = loss.of(model, batch)[0]
    assert float(result) == pytest.approx(-float(torch.cosine_similarity(*means, dim=0)), rel=1e-4)


@pytest.mark.parametrize(
    ("family", "head", "pairs", "message"),
    [
        ("bert", None, False, "needs pairs"),
        ("marian", AutoModelForSeq2SeqLM, False, "needs pairs"),
        ("vit", None, True, "no loss"),
    ],
)
def test_a_loss_that_is_not_there_is_refused(
    family: str, head: type | None, pairs: bool, message: str
) -> None:
    with pytest.raises(HeadscopeError, match=message):
        loss_of(tiny(family, head=head), pairs=pairs)


def test_an_untrained_head_is_refused_by_name() -> None:
    model = tiny("bert", head=AutoModelForMaskedLM)
    model.untrained = ("cls.predictions.bias",)
    with pytest.raises(HeadscopeError, match=r"cls\.predictions\.bias"):
        loss_of(model, pairs=False)


def test_raw_is_always_among_the_lenses() -> None:
    assert lens_list("norm,effective") == ("raw", "norm", "effective")
    with pytest.raises(HeadscopeError, match=choices("", LENSES)):
        lens_list("values")


# Is attention to separators a no-op?


def gradients(attention: float, gradient: float, centred: float) -> pd.DataFrame:
    measures = {
        "attention": attention,
        "uniform": 0.02,
        "gradient-ratio": gradient,
        "centred-ratio": centred,
    }
    rows = []
    for layer in range(3):
        for name, value in measures.items():
            value = 0.01 if name == "attention" and layer == 0 else value
            key = {"stack": "encoder", "layer": layer, "class": "sep", "measure": name}
            rows.append(
                {**key, "value": value, "low": value * 0.9, "high": value * 1.1, "count": 9}
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("gradient", "holds", "message"),
    [(0.1, True, "a no-op only in part"), (0.9, False, "not a no-op")],
)
def test_the_verdict_follows_the_gradient_where_attention_is(
    gradient: float, holds: bool, message: str
) -> None:
    (verdict,) = verdicts(gradients(0.4, gradient, 0.8))
    assert verdict.holds is holds
    assert verdict.layers == (1, 2)
    lead, meaning = verdict.sentence.split(". ")
    assert (
        lead
        == f"Separators draw much attention, and attention to them is {message} (40 % of attention in layers 1, 2)"
    )
    assert meaning.endswith("changes the loss 80 % as much as for other tokens.")
    assert ("but moving that weight elsewhere still changes" in meaning) is holds
    assert "0.80 times" in verdict.numbers


def test_where_both_gradients_are_small_attention_is_a_no_op() -> None:
    (verdict,) = verdicts(gradients(0.4, 0.1, 0.2))
    assert "attention to them is a no-op (40 %" in verdict.sentence
    assert "and moving that weight elsewhere changes the loss 20 % as much" in verdict.sentence


def test_a_gradient_is_small_only_where_its_whole_interval_is() -> None:
    (verdict,) = verdicts(gradients(0.4, 0.48, 0.8))  # 0.43 to 0.53
    assert verdict.holds is False
    assert "0.53" in verdict.numbers


def test_where_nobody_attends_to_separators_the_question_does_not_arise() -> None:
    (verdict,) = verdicts(gradients(0.03, 0.1, 0.1))
    assert verdict.holds is None
    assert verdict.sentence.startswith(
        "Separators draw at most 3 % of attention here. They are not a sink"
    )


def test_the_answer_names_the_sink_where_it_is_another_than_separators() -> None:
    other = gradients(0.4, 0.1, 0.8).assign(**{"class": "cls"})
    (verdict,) = verdicts(pd.concat([gradients(0.03, 0.1, 0.1), other]))
    assert (verdict.kind, verdict.holds, verdict.layers) == ("cls", True, (1, 2))
    lead = "Separators draw at most 3 % of attention here; the sink is the classification token, and attention to it is"
    assert verdict.sentence.startswith(lead)


def test_stacks_are_named_where_there_are_several() -> None:
    tables = [
        gradients(share, 0.1, 0.8).assign(stack=stack)
        for stack, share in (("encoder", 0.4), ("cross", 0.03))
    ]
    assert [one.sentence.partition(":")[0] for one in verdicts(pd.concat(tables))] == [
        "Encoder",
        "Cross",
    ]


# Do the lenses agree?


def study_with(raw: list[float], through: list[float], exact: list[float] | None) -> Study:
    columns = {"sep": raw, "sep@norm": through} | (
        {} if exact is None else {"ablation-loss": exact}
    )
    rows = [
        Row("encoder", 0, head, name, value, np.nan, np.nan, 9)
        for name, values in columns.items()
        for head, value in enumerate(values)
    ]
    return Study(to_frame(rows), {}, {}, {})


def test_a_lens_that_ranks_heads_as_removal_does_has_correlation_1() -> None:
    exact = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    rows = lens_agreement(study_with(exact[::-1], exact, exact))
    assert {row["lens"]: row["correlation"] for row in rows} == pytest.approx(
        {"raw": -1.0, "norm": 1.0}
    )
    assert all(row["low"] <= row["correlation"] <= row["high"] + 1e-9 for row in rows)
    assert lens_agreement(study_with(exact, exact, None)) == []


def test_ties_in_heads_csv_are_ties_in_the_ranks() -> None:
    exact = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    tied = [1 / 3, 1 / 3 + 6e-17, 1 / 3 - 6e-17, 1 / 3, 0.4, 0.5]
    (noisy, _) = lens_agreement(study_with(tied, exact, exact))
    (plain, _) = lens_agreement(study_with([1 / 3] * 4 + [0.4, 0.5], exact, exact))
    assert (noisy["lens"], noisy["correlation"]) == ("raw", plain["correlation"])


def test_every_stack_is_held_against_its_own_ceiling_and_relevance_takes_part() -> None:
    values = {
        "sep@norm": 1.0,
        "relevance": 1.0,
        "argmax-offset@norm": 1.0,
        "ablation-loss": 1.0,
        "confidence": -1.0,
    }
    rows = [
        Row(stack, 0, head, name, sign * head, np.nan, np.nan, 9)
        for stack in ("encoder", "cross")
        for name, sign in values.items()
        for head in range(6)
    ]
    ceilings = pd.DataFrame(
        [{"stack": "encoder", "ceiling": 0.9}, {"stack": "cross", "ceiling": np.nan}]
    )
    record = lens_agreement(Study(to_frame(rows), {}, {}, {"ceilings": ceilings}))
    assert {row["stack"]: row["ceiling"] for row in record} == pytest.approx(
        {"encoder": 0.9, "cross": np.nan}, nan_ok=True
    )
    result = {
        (row["statistic"], row["lens"]): row["correlation"]
        for row in record
        if row["stack"] == "cross"
    }
    wanted = {
        ("sep", "norm"): 1.0,
        ("relevance", "relevance"): 1.0,
        ("confidence", "raw"): -1.0,
    }  # an offset has none
    assert result == pytest.approx(wanted)


def test_the_head_that_is_ranked_most_unlike_raw_is_named() -> None:
    raw = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    (row,) = furthest_apart(study_with(raw, [0.9, *raw[1:]], None))
    assert (row["head"], row["lens"], row["through"]) == (0, "norm", 0.9)
    assert row["apart"] == pytest.approx(5 / 6)


def test_noise_and_numbers_that_are_all_alike_are_no_disagreement() -> None:
    raw = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    noisy = study_with(raw, [0.9, *raw[1:]], None)
    noisy.heads.loc[noisy.heads["statistic"] == "sep@norm", ["low", "high"]] = [0.0, 1.0]
    assert furthest_apart(noisy) == []
    assert furthest_apart(study_with(raw, [0.019, *(value / 100 for value in raw[1:])], None)) == []


@pytest.mark.parametrize(
    ("lens", "name", "message"),
    [
        ("effective", "entropy", "lens effective"),
        ("norm", "rank", "lens norm"),
        ("raw", "rank", "lens raw"),
    ],
)
def test_a_lens_that_would_be_asked_nothing_is_refused(lens: str, name: str, message: str) -> None:
    with pytest.raises(HeadscopeError, match=message):
        headscope.analyze("no model is loaded for this", texts=["a"], lens=lens, statistics=[name])
