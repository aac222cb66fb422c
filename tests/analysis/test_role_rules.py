"""The roles of a made-up study: where each begins, what moves it, and that its sentence says so."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from pathlib import Path

import pandas as pd
import pytest

from headscope.analysis.roles import RULES, StatisticRule, roles_of
from headscope.config.thresholds import Thresholds
from headscope.study.study import Study
from headscope.tables import Row, to_frame

STATISTIC_RULES = [rule for rule in RULES if isinstance(rule, StatisticRule)]
NAN = float("nan")


def heads_with(**values: float) -> pd.DataFrame:
    """The table of one head; names with underscores for hyphens."""
    return to_frame(
        Row("encoder", 0, 0, name.replace("_", "-"), v, v - 0.01, v + 0.01, 50)
        for name, v in values.items()
    )


def rules_of(study: Study, **limits: float) -> dict[str, str]:
    """The roles found, each with its sentence."""
    table = roles_of(study, Thresholds(**limits))
    return {row["role"]: row["rule"] for row in table.to_dict("records")}


@pytest.mark.parametrize("rule", STATISTIC_RULES, ids=lambda rule: rule.role)
def test_a_role_begins_at_its_threshold_wherever_that_is_and_says_so(rule: StatisticRule) -> None:
    also = {rule.also[0]: 0.5} if rule.also else {}
    values = {rule.statistic: 0.65, "argmax-offset": -1.0, **also}
    study = Study(heads_with(**values), {}, {}, {})
    role = "positional -1" if rule.role == "positional" else rule.role
    name = rule.threshold
    below = rules_of(study, **{name: 0.64})
    assert "0.64" in below[role]
    assert (
        roles_of(study, Thresholds(**{name: 0.64})).set_index("role").loc[role, "threshold"] == 0.64
    )
    assert role not in rules_of(study, **{name: 0.66})


def test_a_positional_head_needs_its_offset_to_be_named() -> None:
    share = heads_with(positional_share=0.95)
    assert set(rules_of(Study(share, {}, {}, {}))) == {"undetermined"}
    named = pd.concat([share, heads_with(argmax_offset=2.0)])
    assert set(rules_of(Study(named, {}, {}, {}))) == {"positional +2"}
    other = pd.concat(
        [heads_with(argmax_share=0.95, argmax_offset=2.0), heads_with(positional_share=0.89)]
    )
    assert set(rules_of(Study(other, {}, {}, {}))) == {
        "undetermined"
    }  # the share of all rows is not asked


def test_a_positional_head_is_one_exactly_at_the_threshold() -> None:
    study = Study(heads_with(positional_share=0.9, argmax_offset=0.0), {}, {}, {})
    assert set(rules_of(study)) == {"positional 0"}


def test_a_block_must_also_exceed_what_nearness_gives() -> None:
    study = Study(heads_with(block_score=0.5, block_beyond_offset=0.2), {}, {}, {})
    assert "0.15 above what distance alone would give" in rules_of(study, beyond=0.15)["block"]
    assert "block" not in rules_of(study, beyond=0.25)


@pytest.fixture
def related() -> Study:
    """One head that gains 25 points over the best offset; no twin was asked."""
    key = {"stack": "encoder", "layer": 0, "head": 0, "relation": "obj", "direction": "dependent"}
    single = {**key, "accuracy": 0.65, "low": 0.6, "high": 0.7, "baseline": 0.4, "count": 300}
    single |= {"chosen_gain": 0.25, "least_gain": 0.1, "is_above": True}
    tables = {
        "relation_heads": pd.DataFrame([single]),
        "relations": pd.DataFrame([key | {"control": NAN}]),
    }
    return Study(heads_with(entropy=1.0), {}, {}, tables)


def test_a_relation_must_gain_its_margin_and_the_sentence_says_how_much(related: Study) -> None:
    assert rules_of(related) == {
        "syntactic: obj": "dependent: accuracy 10 points above the best fixed offset, on both halves of the sentences"
    }
    wider = (
        "dependent: accuracy 20 points above the best fixed offset, on both halves of the sentences"
    )
    assert rules_of(related, relation=0.2) == {"syntactic: obj": wider}
    assert "syntactic: obj" in rules_of(related, relation=0.05)
    assert set(rules_of(related, relation=0.26)) == {"undetermined"}
    (threshold,) = roles_of(related, Thresholds(relation=0.2))["threshold"]
    assert threshold == pytest.approx(0.6)


def test_a_relation_must_gain_its_margin_over_the_control_too(related: Study) -> None:
    related.tables["relations"]["control"] = 0.5
    assert "syntactic: obj" in rules_of(related, relation=0.14)
    assert set(rules_of(related, relation=0.16)) == {"undetermined"}


def test_a_direction_that_the_control_shows_too_does_not_hide_another(related: Study) -> None:
    heads, relations = related.tables["relation_heads"], related.tables["relations"]
    other = {"direction": "received", "accuracy": 0.6, "chosen_gain": 0.2}
    related.tables["relation_heads"] = pd.concat([heads, heads.assign(**other)])
    related.tables["relations"] = pd.concat(
        [relations.assign(control=0.62), relations.assign(direction="received", control=0.3)]
    )
    assert rules_of(related) == {
        "syntactic: obj": "received: accuracy 10 points above the best fixed offset, on both halves of the sentences"
    }


def test_the_direction_is_chosen_on_the_half_to_choose_on(related: Study) -> None:
    heads = related.tables["relation_heads"]
    lucky = heads.assign(direction="received", accuracy=0.9, chosen_gain=0.11)
    related.tables["relation_heads"] = pd.concat([lucky, heads])
    assert rules_of(related) == {
        "syntactic: obj": "dependent: accuracy 10 points above the best fixed offset, on both halves of the sentences"
    }


def test_a_head_below_the_margin_on_one_half_is_not_called_by_a_relation(related: Study) -> None:
    related.tables["relation_heads"]["chosen_gain"] = 0.09
    assert set(rules_of(related)) == {"undetermined"}
    assert "syntactic: obj" in rules_of(related, relation=0.08)


def test_a_gain_that_may_be_chance_makes_no_role(related: Study) -> None:
    related.tables["relation_heads"]["least_gain"] = 0.0
    assert set(rules_of(related)) == {"undetermined"}


def test_rare_words_begin_at_the_documented_threshold() -> None:
    heads = heads_with(two_rarest=0.6, rarest=0.4)
    guesses = pd.DataFrame({"kind": ["two-rarest", "rarest"], "value": [0.3, 0.2]})
    study = Study(heads, {}, {}, {"rare_words": guesses})
    assert "in 0.55 of the sentences" in rules_of(study, rare=0.55)["rare words"]
    assert "rare words" not in rules_of(study, rare=0.65)


def test_every_threshold_moves_some_role() -> None:
    used = (
        {rule.threshold for rule in STATISTIC_RULES}
        | {rule.also[1] for rule in STATISTIC_RULES if rule.also}
        | {"relation", "rare"}
    )
    assert used == {one.name for one in fields(Thresholds)}


def test_every_threshold_is_documented_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "tables.md").read_text("utf-8")
    table = page.split("| threshold | default |")[1].split("\n\n")[0]
    documented = {}
    for names, values in re.findall(r"^\| (`[^|]+`) \| ([\d., ]+) \|", table, re.MULTILINE):
        documented |= dict(
            zip(re.findall(r"`(\w+)`", names), map(float, values.split(", ")), strict=True)
        )
    assert documented == asdict(Thresholds())
