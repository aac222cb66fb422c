"""headscope head: the summary of one head says what the tables of the study say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from studies import THREE, made_up, roled
from transformers import BertModel

import headscope
from headscope.errors import HeadscopeError
from headscope.report.head_summary import summarise_head
from headscope.study.study import Study
from worded import worded


def with_roles() -> Study:
    study = made_up()
    rows = [roled(2, "positional -1", 0.9), roled(2, "punctuation", 0.7), roled(1, "rare", 0.8)]
    study.tables["roles"] = pd.DataFrame(rows)
    return study


def test_ranks_are_counted_from_the_highest_value() -> None:
    study = made_up()
    summary = summarise_head(study, "1.3")
    table = summary.tables["statistics"].set_index("statistic")
    for name, row in table.iterrows():
        all_heads = study.heads[study.heads["statistic"] == name]
        own = all_heads[(all_heads["layer"] == 1) & (all_heads["head"] == 3)]["value"].item()
        assert row["value"] == own
        assert row["rank"] == 1 + sum(value > own for value in all_heads["value"]), name
        assert row["heads"] == 8
    assert set(table.index) == set(study.heads["statistic"])


def test_only_the_roles_of_the_head_are_shown() -> None:
    summary = summarise_head(with_roles(), (0, 2))
    assert list(summary.tables["roles"]["role"]) == ["positional -1", "punctuation"]
    text = repr(summary)
    assert "positional −1" in text
    assert "0.900 [0.890, 0.910]" in text
    assert "rare" not in text
    assert "none above its threshold" in repr(summarise_head(with_roles(), "0.0"))


def test_stacks_are_distinguished() -> None:
    study = made_up(THREE)
    summary = summarise_head(study, "cross.1.2")
    assert "layer 1 of cross (0 to 2), head 2 (0 to 3)" in summary.lines()[0]
    expected = study.heads.query("stack == 'cross' and layer == 1 and head == 2")["value"]
    assert list(summary.tables["statistics"]["value"]) == list(expected)
    with pytest.raises(HeadscopeError, match="could be in"):
        summarise_head(study, "1.2")


@pytest.mark.parametrize(
    ("name", "message"),
    [("0.*", "names 4 heads"), ("7.0", "is not in this model"), ("first", "does not name a head")],
)
def test_a_name_must_be_one_head_of_the_study(name: str, message: str) -> None:
    with pytest.raises(HeadscopeError, match=message):
        summarise_head(made_up(), name)


def test_json_holds_the_tables() -> None:
    summary = summarise_head(with_roles(), "0.2")
    read = json.loads(summary.to_json())
    assert read["model"] == "tiny"
    assert read["head"] == "encoder.0.2"
    assert [row["role"] for row in read["roles"]] == ["positional -1", "punctuation"]
    assert read["roles"][0]["baseline"] is None  # NaN is not JSON
    assert len(read["statistics"]) == len(summary.tables["statistics"])


def test_of_a_study_directory_and_of_a_model(tmp_path: Path) -> None:
    texts = ["the cat sat on the mat .", "a dog ran .", "the old house is red ."]
    model = worded(BertModel)
    study = headscope.analyze(model, texts, out=tmp_path / "study")
    from_disk = headscope.head(tmp_path / "study", "1.1")
    in_memory = headscope.head(study, "1.1")
    of_model = headscope.head(model, "1.1", texts=texts)
    pd.testing.assert_frame_equal(from_disk.tables["statistics"], in_memory.tables["statistics"])
    pd.testing.assert_frame_equal(of_model.tables["statistics"], in_memory.tables["statistics"])
    with pytest.raises(HeadscopeError, match="a study has its own texts"):
        headscope.head(study, "1.1", texts=texts)
