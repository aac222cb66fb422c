"""Planted truth is found where it was planted, and nowhere else; in random models it is not found."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import BertConfig, BertModel

import headscope
from planted import ROLES, planted

TEXTS = [
    "the cat sat on the mat .",
    "the dog , the cat",
    "on the mat the dog sat , the cat sat .",
    "cat",
]


@pytest.fixture(scope="module")
def heads():
    return headscope.analyze(planted(), texts=TEXTS).heads


@pytest.mark.parametrize("role", ["previous", "next", "self", "sep", "cls"])
def test_a_planted_head_is_found_where_it_was_planted_and_nowhere_else(heads, role: str) -> None:
    rows = heads.query("statistic == @role")
    result = {f"{row.layer}.{row.head}" for row in rows.itertuples() if row.value > 0.6}
    assert result == {address for address, planted_role in ROLES.items() if planted_role == role}


def test_a_perfect_previous_token_head_scores_n_minus_1_over_n() -> None:
    single = headscope.analyze(
        planted(), texts=["the cat sat"]
    ).heads  # five tokens with [CLS] and [SEP]
    value = single.query("statistic == 'previous' and layer == 0 and head == 1").value.item()
    assert value == pytest.approx(4 / 5, abs=1e-3)


def test_the_uniform_head_has_the_entropy_of_the_uniform_distribution() -> None:
    single = headscope.analyze(planted(), texts=["the cat sat"]).heads.query(
        "layer == 0 and head == 0"
    )
    values = dict(zip(single["statistic"], single["value"], strict=True))
    assert values["entropy"] == pytest.approx(math.log(5), abs=1e-6)
    assert values["confidence"] == pytest.approx(1 / 5, abs=1e-6)
    assert values["special"] == pytest.approx(2 / 5, abs=1e-6)
    assert values["distance"] == pytest.approx(
        sum(abs(i - j) for i in range(5) for j in range(5)) / 25, abs=1e-5
    )


def test_positional_heads_have_their_offset_and_a_share_of_nearly_one(heads) -> None:
    offsets = heads.query("statistic == 'argmax-offset'").set_index(["layer", "head"]).value
    assert offsets[(0, 1)] == -1
    assert offsets[(1, 0)] == 1
    assert offsets[(1, 1)] == 0


def test_a_separator_head_is_sure_of_itself_but_not_of_the_content(heads) -> None:
    rows = heads.query("layer == 2 and head == 0").set_index("statistic").value
    assert rows["confidence"] > 0.95
    assert rows["confidence-content"] < 0.05


def test_in_random_models_no_head_is_positional_or_a_separator_head() -> None:
    tokenizer = planted().tokenizer
    config = BertConfig(
        vocab_size=12,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    result = 0
    for seed in range(10):
        torch.manual_seed(seed)
        model = headscope.AttentionModel(BertModel(config).eval(), tokenizer)
        heads = headscope.analyze(model, texts=TEXTS[:3]).heads
        wanted = heads["statistic"].isin(["previous", "next", "self", "sep", "cls"])
        result += int((heads[wanted]["value"] > 0.5).sum())
    assert result == 0
