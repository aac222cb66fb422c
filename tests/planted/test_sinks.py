"""Sinks are found where they were planted, named, and judged by what they carry; other patterns are no sinks."""

from __future__ import annotations

import pytest

import headscope
from headscope.analysis.separators import verdicts
from headscope.study.study import Study
from planted import planted
from planted_decoder import MIDDLE, ROLES, START, planted_decoder, texts

SINKS = {head for head, role in ROLES.items() if role in ("first", MIDDLE)}


@pytest.fixture(scope="module")
def study() -> Study:
    return headscope.analyze(planted_decoder(), texts=texts(40))


def values(study: Study, statistic: str) -> dict[str, float]:
    rows = study.heads[study.heads["statistic"] == statistic]
    return {f"{row.layer}.{row.head}": row.value for row in rows.itertuples()}


def test_attention_to_the_first_token_is_found_where_it_was_planted_and_nowhere_else(
    study: Study,
) -> None:
    result = values(study, "first")
    assert {head for head, value in result.items() if value > 0.5} == {"0.0", "2.1"}
    assert (
        result["1.1"] < 0.01
    )  # attends to itself: the first row, which sees nothing else, is not counted
    assert result["0.1"] == pytest.approx(values_of_uniform_first(), abs=1e-6)


def values_of_uniform_first() -> float:
    """The mean over texts of the mean over rows 2 … n of 1/row."""
    lengths = [len(text.split()) for text in texts(40)]
    return sum(sum(1 / row for row in range(2, n + 1)) / (n - 1) for n in lengths) / len(lengths)


def test_sinks_at_any_token_are_found_and_other_patterns_are_none(study: Study) -> None:
    result = values(study, "sink")
    assert {head for head, value in result.items() if value > 0.5} == SINKS
    assert all(result[head] < 0.25 for head in ("0.1", "1.0", "1.1")), (
        result
    )  # uniform, previous token, itself


def test_the_sink_s_token_and_position_are_named(study: Study) -> None:
    table = {f"{row.layer}.{row.head}": row for row in study.tables["sinks"].itertuples()}
    first, middle = table["0.0"], table["2.0"]
    assert (first.token, first.token_share, first.position, first.first_share) == (
        START,
        1.0,
        0,
        1.0,
    )
    assert (middle.token, middle.token_share, middle.position, middle.first_share) == (
        MIDDLE,
        1.0,
        4,
        0.0,
    )
    assert middle.position_share == 1.0
    assert middle.count == 40


def test_heads_with_a_sink_have_the_role_and_no_others(study: Study) -> None:
    roles = study.tables["roles"]
    sinks = roles[roles["role"] == "sink"]
    assert {f"{row.layer}.{row.head}" for row in sinks.itertuples()} == SINKS
    assert sinks["is_sure"].all()
    rules = {f"{row.layer}.{row.head}": row.rule for row in sinks.itertuples()}
    assert rules["0.0"].endswith("here the first token in 100 % of the texts")
    assert rules["2.0"].endswith(f'here mostly "{MIDDLE}" (100 % of the texts)')
    shown = study.tables["examples"]
    assert {"typical"} <= set(shown[shown["role"] == "sink"]["kind"])


def test_an_encoder_s_sink_is_its_classification_token() -> None:
    fillers = [
        "the cat sat on the mat the dog sat on the cat",
        "on the mat the dog sat , the cat sat .",
    ] * 4
    study = headscope.analyze(planted(), texts=fillers)
    assert {head for head, value in values(study, "sink").items() if value > 0.5} == {"2.0", "2.1"}
    table = {f"{row.layer}.{row.head}": row for row in study.tables["sinks"].itertuples()}
    assert (table["2.1"].token, table["2.1"].first_share) == ("[CLS]", 1.0)
    assert (table["2.0"].token, table["2.0"].first_share) == ("[SEP]", 0.0)
    assert (table["2.0"].token_class, table["2.1"].token_class) == ("separator", "classification")
    assert "sink" not in set(
        study.tables["roles"]["role"]
    )  # attention to these tokens has roles of its own


@pytest.mark.parametrize("batch_size", [1, 3])
def test_batch_size_changes_neither_statistics_nor_the_table(study: Study, batch_size: int) -> None:
    other = headscope.analyze(planted_decoder(), texts=texts(40), batch_size=batch_size)
    for statistic in ("first", "sink"):
        assert values(other, statistic) == pytest.approx(values(study, statistic), abs=1e-6)
    assert other.tables["sinks"].equals(study.tables["sinks"])


LAST = {"0.0": "uniform", "0.1": "uniform", "1.0": "first", "1.1": "first"}


def verdict_of(start_value: float) -> list:
    model = planted_decoder(LAST, sharpness=0.9, start_value=start_value)
    study = headscope.analyze(model, texts=texts(40), lens="gradient")
    return verdicts(study.tables["gradients"])


def test_a_decoder_s_sink_without_information_is_a_no_op() -> None:
    (verdict,) = verdict_of(0.0)
    assert (verdict.kind, verdict.holds, verdict.layers) == ("first", True, (1,))
    assert verdict.sentence.startswith(
        "The first token draws much attention, and attention to it is a no-op ("
    )


def test_a_decoder_s_sink_that_carries_information_is_no_no_op() -> None:
    (verdict,) = verdict_of(1.0)
    assert (verdict.kind, verdict.holds, verdict.layers) == ("first", False, (1,))
    assert "attention to it is not a no-op" in verdict.sentence


def test_a_decoder_whose_heads_have_no_sink_is_reported_to_have_none() -> None:
    model = planted_decoder(dict.fromkeys(LAST, "previous"))
    study = headscope.analyze(model, texts=texts(20), lens="gradient")
    (verdict,) = verdicts(study.tables["gradients"])
    assert (verdict.kind, verdict.holds) == ("", None)
    assert verdict.sentence.startswith("The first token draws at most ")
    assert verdict.sentence.endswith(
        "They are not a sink, so there is no no-op attention to explain."
    )
