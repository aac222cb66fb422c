"""What the explorer tells of a study is what its tables say; what they do not say is not told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from asking import Asking
from beside import EVIL, PLACES, full, model, of, role, without
from studies import made_up

from headscope.analysis.token_maps import encode_input
from headscope.errors import HeadscopeError
from headscope.explorer.serving import Explorer
from headscope.explorer.study_view import StudyView
from headscope.heads import Head
from headscope.report.look.token_axis import axis_of
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame


@pytest.fixture(scope="module")
def asking(start: Callable[..., Explorer], tmp_path_factory: pytest.TempPathFactory) -> Asking:
    """An explorer with a study as it is on disk."""
    folder: Path = tmp_path_factory.mktemp("study")
    made = model()
    write_tables(full(made), folder)
    return Asking(start(made, study=folder), made)


def test_about_says_what_there_is(asking: Asking) -> None:
    record = asking.get("/api/about").json["study"]
    assert record["model"] == "tiny"
    assert record["is_of_this_model"]
    assert record["statistics"] == [
        "previous",
        "entropy",
        "js-previous",
        "js-uniform",
        "ablation-loss",
    ]
    assert record["importances"] == ["ablation-loss"]
    assert (record["has_roles"], record["has_clusters"], record["has_examples"]) == (
        True,
        True,
        True,
    )


def test_unimportant_are_those_shown_to_cost_next_to_nothing(asking: Asking) -> None:
    """Neither those that are missed, nor one of which nothing was shown (0.3), nor those that nobody tested."""
    (record,) = asking.get("/api/about").json["study"]["unimportant"]
    assert (record["heads"], record["count"]) == ("0.1-2", 2)
    assert record["what"] == "that raise the loss by less than 0.01 each (100 examples)"
    assert "Together they may cost more" in record["why"]
    assert asking.attend("the cat", None, record["heads"])["off"] == "0.1-2"


def weighed(highs: dict[str, float], loss: float | None = None, half: float = 0.001) -> Study:
    """A study whose tests have these upper ends."""
    study = made_up()
    study.tables["significance"] = pd.DataFrame(
        [without(h, high - half, False, half) for h, high in highs.items()]
    )
    task = {"task": "sts </b>", "intact": {"loss": {"value": loss}}}
    study.record = {**study.record, **({} if loss is None else {"importance": task})}
    return study


def test_a_weak_study_calls_no_head_unimportant() -> None:
    """Sixteen examples show a rise of no head, and that it is small of none either: that is no reason to cut all."""
    weak = {f"{layer}.{head}": 0.002 for layer, head in PLACES}
    assert StudyView(weighed(weak, loss=0.0213, half=0.0018), model()).about["unimportant"] == []


def test_the_margin_is_a_share_of_the_intact_loss() -> None:
    (record,) = StudyView(
        weighed({"0.0": 0.019, "0.1": 0.021, "1.0": -0.3}, loss=-2.0), model()
    ).about["unimportant"]
    assert record["heads"] == "0.0,1.0"
    assert record["what"] == "that raise the sts </b> loss by less than 0.02 each (100 examples)"
    assert "raises the sts </b> loss by less than 0.02 (1 % of 2)" in record["why"]


def test_no_layer_is_called_unimportant_as_a_whole() -> None:
    cheap = {f"{layer}.{head}": 0.001 + 0.001 * head for layer, head in PLACES}
    (record,) = StudyView(weighed(cheap), model()).about["unimportant"]
    assert record["heads"] == "0.0-2,1.0-2"  # the one that may cost most stays
    assert "One head per layer stays on" in record["why"]


def test_heads_have_the_numbers_of_the_table(asking: Asking) -> None:
    record = asking.get("/api/study/heads").json
    study = full(asking.model)
    assert [item["name"] for item in record["statistics"]] == list(
        dict.fromkeys(study.heads["statistic"])
    )
    assert [(item["layer"], item["head"]) for item in record["heads"]] == PLACES
    rows = {(row.layer, row.head, row.statistic): row for row in study.heads.itertuples()}
    for item in record["heads"]:
        for name, numbers in item["values"].items():
            row = rows.pop((item["layer"], item["head"], name))
            assert numbers == pytest.approx([row.value, row.low, row.high], rel=1e-5)
        assert item["cluster"] == item["head"] % 2
    assert not rows, "every row is told"
    by_head = {(item["layer"], item["head"]): item["roles"] for item in record["heads"]}
    assert by_head[1, 3] == ["syntactic: nsubj", "diffuse"]
    assert by_head[0, 0] == [], "undetermined is no role"
    assert by_head[0, 1] == [EVIL]


def test_markup_in_a_study_is_sent_escaped(asking: Asking) -> None:
    for path in ("/api/study/heads", "/api/study/cards/0.1", "/api/study/examples/1.3"):
        assert b"<" not in asking.get(path).body


def test_a_card_holds_what_the_tables_say(asking: Asking) -> None:
    card = asking.get("/api/study/cards/1.3").json
    assert (card["stack"], card["layer"], card["head"]) == ("encoder", 1, 3)
    assert [one["role"] for one in card["roles"]] == ["syntactic: nsubj", "diffuse"]
    assert card["roles"][0]["rule"] == "rule of syntactic: nsubj"
    assert card["twin"] == {"layer": 1, "head": 2, "distance": 0.25}
    assert card["cluster"] == 1
    assert [(one["value"], one["is_significant"]) for one in card["tests"]] == [(0.2, True)]
    assert [one["text"] for one in card["importance"]] == ["0.200 [0.100, 0.300]"], (
        "as the report has it"
    )
    assert card["substitute"]["pattern"]
    assert set(card["values"]) == set(asking.get("/api/about").json["study"]["statistics"])
    assert asking.get("/api/study/cards/encoder.1.3").json == card


def test_examples_hold_their_words(asking: Asking) -> None:
    (record,) = asking.get("/api/study/examples/1.3").json
    assert (record["words"], record["text"], record["second"]) == (
        ["the", "cat", "<b>"],
        "the cat <b>",
        None,
    )
    assert (record["roles"], record["query"], record["key"], record["expected"]) == (
        ["syntactic: nsubj"],
        1,
        2,
        None,
    )
    assert (record["token"], record["is_whole"]) == (2, False), (
        "cat, behind [CLS]; the study does not keep the text"
    )
    assert asking.get("/api/study/examples/0.0").json == []


def with_examples(*rows: dict[str, object]) -> StudyView:
    study = made_up()
    study.tables["roles"] = pd.DataFrame(
        [role("0.1", name) for name in ("positional +1", "positional -1", "next token", "nsubj")]
    )
    shared = {"direction": "", "kind": "typical", "weight": 0.9, "expected": math.nan}
    study.tables["examples"] = pd.DataFrame([of("0.1") | shared | row for row in rows])
    return StudyView(study, model())


def listed_examples(view: StudyView) -> list[dict[str, Any]]:
    return view.examples.of(Head("encoder", 0, 1))


def listed(words: str) -> str:
    return json.dumps(words.split())


KEPT = json.dumps(["the old cat sat on the mat .", "a dog ran ."])


def test_an_example_is_the_text_that_was_read_both_of_a_pair() -> None:
    """[CLS] the old cat sat on the mat . [SEP] a dog ran . [SEP]: a dog is at 11, whatever is shown around it."""
    shown = {
        "words": listed("… mat . [SEP] a dog ran …"),
        "query": 5,
        "key": 6,
        "text": KEPT,
        "starts": "[7]",
    }
    (record,) = listed_examples(with_examples({"role": "next token", **shown}))
    assert (record["text"], record["second"]) == ("the old cat sat on the mat .", "a dog ran .")
    assert (record["token"], record["level"], record["is_whole"]) == (11, "tokens", True)
    assert record["words"][record["query"]] == "dog"


def test_words_of_a_text_are_found_by_their_letters() -> None:
    """The second "the" of the words: the sixth token, behind [CLS] and five words, one of which is not known."""
    words = "the Old cat sat-on the mat"
    shown = {
        "words": listed(words),
        "query": 4,
        "key": 5,
        "text": json.dumps([words]),
        "starts": "[0]",
    }
    (record,) = listed_examples(with_examples({"role": "nsubj", **shown}))
    side = encode_input(model(), words, None).layout.sides("encoder")
    assert side is not None
    labels = axis_of(model(), side[0]).token_labels()
    assert record["level"] == "words"
    assert labels[record["token"]] == "the"
    assert record["token"] > 3


def test_a_text_put_together_has_its_words_whole_and_its_segments_apart() -> None:
    shown = {"words": listed("… the ca ##t sat . [SEP] a do ##g ran [SEP]"), "query": 8, "key": 3}
    (record,) = listed_examples(with_examples({"role": "next token", **shown}))
    assert (record["text"], record["second"], record["is_whole"]) == (
        "the cat sat .",
        "a dog ran",
        False,
    )
    assert record["words"][record["query"]] == "do", "pieces are shown as pieces"
    assert record["token"] == 7  # [CLS] the cat sat . [SEP] a dog


def test_two_pieces_of_one_word_stay_two() -> None:
    """As on the report's cards: where both were one word there would be nothing to mark."""
    shown = {
        "words": listed("the ca ##t sat"),
        "query": 2,
        "key": 1,
        "expected": 3.0,
        "weight": 0.83,
    }
    for kept in ({}, {"text": json.dumps(["the cat sat"]), "starts": "[0]"}):
        (record,) = listed_examples(with_examples({"role": "next token", **shown, **kept}))
        assert record["words"] == ["the", "ca", "##t", "sat"]
        assert (record["query"], record["key"], record["expected"], record["weight"]) == (
            2,
            1,
            3,
            0.83,
        )


def test_an_offset_to_the_left_has_its_examples() -> None:
    """Its name has a minus sign on the page, and a hyphen in the table."""
    shown = {"words": listed("the cat sat"), "query": 1, "key": 0}
    (record,) = listed_examples(with_examples({"role": "positional -1", **shown}))
    assert record["roles"] == ["positional −1"]


def test_an_example_of_two_roles_is_listed_once() -> None:
    shown = {"words": listed("the cat sat"), "query": 1, "key": 2}
    other = {"words": listed("a dog ran"), "query": 0, "key": 1}
    rows = [
        {"role": "nsubj", **shown},
        {"role": "next token", **shown},
        {"role": "next token", **other},
    ]
    record = listed_examples(with_examples(*rows))
    assert [(one["text"], one["roles"]) for one in record] == [
        ("the cat sat", ["nsubj", "next token"]),
        ("a dog ran", ["next token"]),
    ]


def test_a_text_that_is_too_long_to_be_asked_is_put_together() -> None:
    long = json.dumps(["the cat sat . " * 30])
    shown = {
        "words": listed("… the cat sat …"),
        "query": 2,
        "key": 3,
        "text": long,
        "starts": "[81]",
    }
    (record,) = listed_examples(with_examples({"role": "next token", **shown}))
    assert (record["text"], record["token"], record["is_whole"]) == ("the cat sat", 2, False)


@pytest.mark.parametrize(
    ("head", "message"),
    [("9.9", "is not in this model"), ("x", "does not name a head"), ("0.*", "names 4 heads")],
)
def test_what_is_no_head_is_refused(head: str, message: str, asking: Asking) -> None:
    for kind in ("cards", "examples"):
        answer = asking.get(f"/api/study/{kind}/{head}")
        assert answer.status == 422
        assert message in answer.error


def test_a_study_with_rows_alone_is_described(start: Callable[..., Explorer]) -> None:
    asking = Asking(start(model(), study=made_up(has_maps=False)), model())
    record = asking.get("/api/about").json["study"]
    assert not record["is_of_this_model"]
    assert (record["unimportant"], record["has_roles"]) == ([], False)
    card = asking.get("/api/study/cards/0.0").json
    assert (card["roles"], card["twin"], card["cluster"], card["tests"]) == ([], None, None, [])
    assert asking.get("/api/study/examples/0.0").json == []


def test_a_plan_and_gates_name_unimportant_heads_too() -> None:
    rows = [
        Row("encoder", layer, head, "cut", float(head > 1), math.nan, math.nan, 1)
        for layer, head in PLACES
    ]
    rows += [
        Row("encoder", layer, head, "gate-small", float(layer), math.nan, math.nan, 1)
        for layer, head in PLACES
    ]
    record = StudyView(Study(to_frame(rows)), model()).about["unimportant"]
    assert [(one["heads"], one["count"]) for one in record] == [("0.2-3,1.2-3", 4), ("0.*", 4)]
    assert (record[0]["what"], record[1]["what"]) == (
        "that the plan prunes",
        "whose gates are closed (small)",
    )
    assert record[1]["why"] == "their gates are closed (small)"


def test_a_study_of_other_heads_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="has none of the heads of worded"):
        StudyView(made_up({"cross": (1, 1)}), model())


def test_a_table_without_its_columns_is_refused() -> None:
    study = made_up()
    study.tables["significance"] = pd.DataFrame({"statistic": ["ablation-loss"]})
    with pytest.raises(
        HeadscopeError, match="`study`: a table of the study of tiny cannot be read"
    ):
        StudyView(study, model())
