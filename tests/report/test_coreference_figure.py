"""The coreference figure shows the head and the rules, also where half of it is missing."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
from studies import made_up

from headscope.report.rendered_figures import svg_of
from headscope.report.sections.coreference import CoreferenceFigure
from headscope.study.study import Study

ROW: dict[str, Any] = {
    "kind": "all",
    "candidates": "mentions",
    "stack": "encoder",
    "layer": 1,
    "head": 3,
    "accuracy": 0.7,
    "low": 0.6,
    "high": 0.8,
    "nearest": 0.4,
    "head_match": 0.5,
    "rules": 0.75,
    "chance": 0.3,
    "count": 1771,
}
NOT_CHOSEN = dict.fromkeys(
    ("stack", "layer", "head", "accuracy", "low", "high", "nearest", "rules", "chance")
)


def study_of(*rows: dict[str, Any]) -> Study:
    study = made_up()
    study.tables["coreference"] = pd.DataFrame(list(rows))
    return study


@pytest.mark.parametrize(
    "rows",
    [
        [ROW],
        [ROW, ROW | {"candidates": "words"}],
        [ROW, ROW | {"kind": "pronoun"} | NOT_CHOSEN],
        [ROW, ROW | {"candidates": "words"} | NOT_CHOSEN],
        [ROW | {"low": None, "high": None}],
    ],
    ids=[
        "one panel",
        "two panels",
        "no pronoun to choose on",
        "nothing among words",
        "no interval",
    ],
)
def test_it_draws_what_there_is(rows: list[dict[str, Any]]) -> None:
    study = study_of(*rows)
    (drawing,) = CoreferenceFigure.for_study(study)
    assert drawing.applies(study)
    svg = svg_of(drawing.draw(study))
    words = re.findall(r">([^<>]+)</text>", svg)
    assert "1.3" in words
    assert "all mentions (1,771)" in words
    assert {"best head", "nearest mention", "same head word", "four rules", "chance"} <= set(words)


def test_without_its_table_it_does_not_apply() -> None:
    for study in (made_up(), study_of()):
        (drawing,) = CoreferenceFigure.for_study(study)
        assert not drawing.applies(study)
