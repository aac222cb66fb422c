"""Roles, relations, coreference and rare words on the page: true to the tables, safe, and absent without them."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
import pytest
from studies import SMALL, THREE, made_up

from headscope.report import head_cards as cards
from headscope.report.head_cards import by_gain, cards_of, roles_by_head
from headscope.report.page.render import render
from headscope.report.rendered_figures import svg_of
from headscope.report.sections import figures_of, findings_of, parts_of
from headscope.study.study import Study

EVIL = "</script><img src=x onerror=alert(2)>\"'&<!--"
NAN = math.nan
RELATION: dict[str, Any] = {
    "relation": "nsubj",
    "direction": "dependent",
    "stack": "encoder",
    "layer": 1.0,
    "head": 3.0,
    "accuracy": 0.7,
    "low": 0.6,
    "high": 0.8,
    "same_data_accuracy": 0.71,
    "same_data_best_layer": 1.0,
    "same_data_best_head": 2.0,
    "same_data_best_accuracy": 0.72,
    "baseline": 0.4,
    "baseline_offset": -1,
    "control": 0.1,
    "count": 1234,
}
NOT_RANKED = dict.fromkeys(
    (
        "layer",
        "head",
        "accuracy",
        "low",
        "high",
        "same_data_best_layer",
        "same_data_best_accuracy",
        "control",
    ),
    NAN,
) | {"relation": "vocative", "count": 12}


def full(stacks: dict[str, tuple[int, int]] = SMALL, word: str = "nsubj") -> Study:
    study = made_up(stacks, ["previous", "entropy", "js-previous", "js-uniform", "two-rarest"])
    head_key = {"stack": "encoder", "layer": 1, "head": 3}
    role = head_key | {
        "role": f"syntactic: {word}",
        "value": 0.7,
        "low": 0.6,
        "high": 0.8,
        "baseline": 0.4,
        "threshold": 0.5,
        "is_sure": True,
        "rule": f"dependent: {word}",
        "count": 600,
    }
    broad = role | {
        "role": "broad",
        "value": 0.8,
        "low": 0.79,
        "high": 0.81,
        "baseline": NAN,
        "threshold": 0.78,
    }
    none = role | {
        "head": 0,
        "role": "undetermined",
        "value": NAN,
        "rule": "no rule applies",
        "is_sure": False,
    }
    related = head_key | {
        "relation": word,
        "direction": "dependent",
        "accuracy": 0.7,
        "low": 0.6,
        "high": 0.8,
    }
    example = head_key | {
        "role": f"syntactic: {word}",
        "direction": "dependent",
        "kind": "typical",
        "words": json.dumps(["The", word, "sleeps", "here", "."]),
        "query": 1,
        "key": 2,
        "weight": 0.9,
        "expected": NAN,
        "arcs": json.dumps([[0, 1, 0.5], [1, 2, 0.9]]),
    }
    counter = example | {"kind": "counter", "key": 0, "expected": 2.0}
    guess = {
        "kind": "two-rarest",
        "baseline": word,
        "value": 0.3,
        "low": 0.2,
        "high": 0.4,
        "count": 9,
    }
    similar = head_key | {
        "x": 0.0,
        "y": 0.0,
        "cluster": 0,
        "twin_layer": 0.0,
        "twin_head": 1.0,
        "twin_distance": 0.01,
    }
    antecedent = head_key | {
        "kind": "all",
        "candidates": "mentions",
        "accuracy": 0.6,
        "low": NAN,
        "high": NAN,
        "same_data_best_accuracy": 0.65,
        "nearest": 0.3,
        "head_match": 0.5,
        "rules": 0.6,
        "chance": 0.1,
        "count": 99,
    }
    study.tables |= {
        "roles": pd.DataFrame([none, broad, role]),
        "relations": pd.DataFrame([RELATION | {"relation": word}, RELATION | NOT_RANKED]),
        "relation_heads": pd.DataFrame(
            [related | {"baseline": 0.4, "is_above": True, "count": 600}]
        ),
        "examples": pd.DataFrame([example, counter]),
        "rare_words": pd.DataFrame([guess]),
        "clusters": pd.DataFrame(
            [
                similar,
                similar | {"layer": 0, "head": 1, "x": 1.0, "twin_layer": 1.0, "twin_head": 3.0},
            ]
        ),
        "coreference": pd.DataFrame([antecedent]),
    }
    return study


def test_without_the_tables_there_is_nothing_to_show() -> None:
    study = made_up()
    assert parts_of(study) == []
    assert cards_of(study) == {"heads": [], "sentences": []}
    page = render(study)
    assert 'id="part-' not in page
    assert 'class="sheet"' not in page


def test_a_card_holds_what_the_tables_say() -> None:
    result = cards_of(full())
    (stack,) = result["heads"]
    card = stack[1 * 4 + 3]
    assert [role["role"] for role in card["roles"]] == ["syntactic: nsubj", "diffuse"]
    assert card["roles"][0] == {
        "role": "syntactic: nsubj",
        "value": 0.7,
        "low": 0.6,
        "high": 0.8,
        "baseline": 0.4,
        "sure": True,
        "rule": "dependent → syntactic head: nsubj",
    }
    assert card["twin"] == [0, 1, 0.01]
    assert card["relations"][0]["relation"] == "nsubj"
    assert result["sentences"] == [["The", "nsubj", "sleeps", "here", "."]]
    assert card["examples"] == [
        ["syntactic: nsubj", "typical", "dependent", 0, 1, 2, 0.9, None],
        ["syntactic: nsubj", "counter", "dependent", 0, 1, 0, 0.9, 2],
    ]


def test_the_substitute_is_the_nearest_fixed_pattern() -> None:
    study = full()
    rows = study.heads[study.heads["statistic"].str.startswith("js-")]
    for row in rows.loc[rows.groupby(["layer", "head"])["value"].idxmin()].to_dict("records"):
        name, value = cards_of(study)["heads"][0][row["layer"] * 4 + row["head"]]["substitute"]
        assert (
            name
            == {"js-previous": "the previous token", "js-uniform": "uniform attention"}[
                row["statistic"]
            ]
        )
        assert value == pytest.approx(row["value"], rel=1e-3)


def test_sure_roles_come_before_stronger_ones_that_are_not_sure() -> None:
    study = full()
    study.tables["roles"].loc[2, "is_sure"] = False
    assert [role.name for role in roles_by_head(study)["encoder", 1, 3]] == [
        "diffuse",
        "syntactic: nsubj",
    ]


def test_examples_are_left_out_where_the_page_would_grow_too_heavy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cards, "MOST_EXAMPLE_BYTES", 10)
    result = cards_of(full())
    assert result["sentences"] == []
    assert result["heads"][0][7]["examples"] == []


def test_relations_are_listed_with_all_their_columns() -> None:
    part = next(part for part in parts_of(full()) if part.name == "relations")
    texts = [[cell.text for cell in row] for row in part.rows]
    assert texts[0] == [
        "nsubj",
        "dependent → syntactic head",
        "1.3",
        "0.700 [0.600, 0.800]",
        "+0.300",
        "0.400 at −1",
        "0.720 by 1.2",
        "0.100",
        "1\u202f234",
    ]
    assert texts[1][:2] == ["vocative", "dependent → syntactic head"]
    assert texts[1][2:] == ["–", "–", "–", "0.400 at −1", "–", "–", "12"]
    assert part.rows[0][2].head == "1.3"


def test_the_gain_is_over_the_control_where_that_is_larger() -> None:
    lucky = RELATION | {"relation": "list", "accuracy": 0.9, "baseline": 0.1, "control": 0.85}
    unasked = RELATION | {"relation": "obj", "control": NAN}
    order = [
        row["relation"]
        for row in by_gain(pd.DataFrame([lucky, unasked | {"accuracy": 0.75}, RELATION]))
    ]
    assert order == ["obj", "nsubj", "list"]


def test_findings_name_relations_antecedents_rare_words_and_similar_heads() -> None:
    actual = [str(finding) for finding in findings_of(full())]
    assert (
        "Head 3 of layer 1 links subjects (nsubj) to the words they depend on in 70.0\u00a0% of the word pairs. "
        "1.3: 0.700 [0.600, 0.800] of the pairs dependent → syntactic head; best fixed offset: 0.400; the head was "
        "selected on other sentences." in actual
    )
    assert (
        "Head 3 of layer 1 finds the antecedent of 60.0\u00a0% of the mentions. 1.3: 0.600 of the mentions; the best "
        "rule without attention (four rules): 0.600; the head was selected on other documents."
        in actual
    )
    assert any(
        "attends to one of the two rarest words" in text and "best simple guess (nsubj): " in text
        for text in actual
    )
    assert any(
        text.startswith("The two most similar heads are 0.01 nats apart. 1.3; 0.1;")
        for text in actual
    )


@pytest.mark.parametrize("stacks", [SMALL, THREE], ids=["one stack", "three stacks"])
def test_the_page_links_heads_by_their_address(stacks: dict[str, tuple[int, int]]) -> None:
    page = render(full(stacks))
    label = "1.3" if stacks is SMALL else "encoder.1.3"
    for name in ("roles", "relations", "coreference", "rare-words"):
        assert f'id="part-{name}"' in page
    assert page.count(f'data-head="{label}"') >= 4


def test_markup_in_the_tables_stays_text() -> None:
    page = render(full(word=EVIL))
    assert "<img src=x" not in page
    assert page.count("<script") == 2


@pytest.mark.parametrize("name", ["relations", "roles", "rare_words", "arcs"])
def test_the_figures_draw_and_name_the_head(name: str) -> None:
    study = full()
    (drawing,) = [one for one in figures_of(study) if one.name.startswith(name.replace("_", "-"))]
    svg = svg_of(drawing.draw(study))
    record = {
        "relations": ">1.3<",
        "roles": ">nsubj<",
        "rare_words": ">nsubj 0.30<",
        "arcs": "head 1.3",
    }
    assert record[name] in svg
    assert not [one for one in figures_of(made_up()) if one.name.startswith(name.replace("_", "-"))]
