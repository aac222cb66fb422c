"""The first screen of a page: map with tendencies, short findings, what to do next."""

from __future__ import annotations

import math
import re
from html import unescape
from typing import Any

import pandas as pd
import pytest
from studies import RECORD, made_up, roled

from headscope.analysis.roles import UNDETERMINED
from headscope.report.finding import Headline, name_head, percent
from headscope.report.head_cards import ROLE_LABELS, role_label, roles_by_head
from headscope.report.map_colours import colourings_of
from headscope.report.page.first_screen import explorer_command, full_name, subtitle
from headscope.report.page.render import render
from headscope.report.sections import findings_of
from headscope.report.tendencies import RULE, tendencies
from headscope.report.top_findings import select_top
from headscope.study.study import Study
from headscope.tables import Row, to_frame

NAN = float("nan")


def planted(
    values: dict[int, dict[str, float]],
    roles: list[dict[str, Any]] | None = None,
    *,
    natural_language: bool = True,
    width: int = 8,
) -> Study:
    """One layer: statistics by head, 0 where not given; roles of some heads, none of the others."""
    names = sorted({name for of_head in values.values() for name in of_head})
    rows = [
        Row("encoder", 0, head, name, value, value - 0.01, value + 0.01, 99)
        for head in range(width)
        for name in names
        if math.isfinite(value := values.get(head, {}).get(name, 0.0))
    ]
    record = {**RECORD, "model": {**RECORD["model"], "natural_language": natural_language}}
    study = Study(to_frame(rows), {}, record)
    with_role = {row["head"] for row in roles or ()}
    nothing = roled(0, UNDETERMINED, NAN)
    others = [nothing | {"head": head} for head in range(width) if head not in with_role]
    study.tables["roles"] = pd.DataFrame([*(roles or []), *others])
    return study


def names_of(study: Study) -> dict[int, str]:
    return {head: tendency.name for (_, _, head), tendency in tendencies(study).items()}


def test_a_head_tends_to_the_target_that_comes_closest_to_the_threshold_of_its_role() -> None:
    """Thresholds: 0.5 for neighbours, 0.6 for kinds of tokens, 0.78 for entropy."""
    values = {
        0: {"previous": 0.40, "cls": 0.45},  # 0.80 and 0.75 of the thresholds
        1: {"previous": 0.35, "cls": 0.45},  # 0.70 and 0.75
        2: {"next": 0.30, "entropy-share": 0.77},  # 0.60 and 0.99: a target comes before diffuse
        3: {"self": 0.24, "entropy-share": 0.40},  # 0.48, too little, and 0.51
        4: {"sep": 0.29, "entropy-share": 0.38},  # 0.48 and 0.49: neither
        5: {"punctuation": 0.31},
        6: {"cls": 0.59},
    }
    study = planted(values, [roled(6, "previous token", 0.9)])
    assert names_of(study) == {
        0: "previous token",
        1: "classification token",
        2: "next token",
        3: "diffuse",
        5: "punctuation",
    }
    nearest = tendencies(study)["encoder", 0, 0]
    assert (nearest.statistic, nearest.value, nearest.threshold) == ("previous", 0.40, 0.5)
    assert nearest.closeness == pytest.approx(0.8)


def test_a_tendency_follows_the_thresholds_of_the_study() -> None:
    study = planted({0: {"previous": 0.40}, 1: {"previous": 0.20}})
    assert names_of(study) == {0: "previous token"}
    study.record = {**study.record, "options": {"thresholds": {"neighbour": 0.3}}}
    assert names_of(study) == {0: "previous token", 1: "previous token"}
    study.record["options"]["thresholds"]["neighbour"] = 0.9
    assert names_of(study) == {}


def test_a_full_stop_is_no_punctuation_in_smiles_nor_a_classification_token_a_first_one() -> None:
    points = {0: {"punctuation": 0.4}}
    assert names_of(planted(points)) == {0: "punctuation"}
    assert names_of(planted(points, natural_language=False)) == {}
    assert names_of(planted({0: {"first": 0.5}})) == {0: "first token"}
    assert names_of(planted({0: {"first": 0.5, "cls": 0.4}})) == {0: "classification token"}


def test_without_roles_there_are_no_tendencies() -> None:
    study = planted({0: {"previous": 0.40}})
    del study.tables["roles"]
    assert tendencies(study) == {}
    assert names_of(planted({head: {"previous": 0.01} for head in range(8)})) == {}


def test_the_map_shows_tendencies_paler_and_counts_them_apart() -> None:
    values = {0: {"previous": 0.9}, 1: {"previous": 0.4}, 2: {"previous": 0.3}}
    study = planted(values, [roled(0, "previous token", 0.9)])
    (colouring,) = colourings_of(study)
    assert [(one["text"], one["heads"], one.get("pale")) for one in colouring["labels"]] == [
        ("position", 1, None),
        ("position, tendency", 2, True),
    ]
    assert colouring["labels"][0]["colour"] == colouring["labels"][1]["colour"]
    assert colouring["stacks"][0][:4] == [[0, "−1"], [1, "−1"], [1, "−1"], None]
    assert RULE in colouring["definition"]


def test_the_map_is_on_the_page_without_a_script() -> None:
    values = {0: {"previous": 0.9}, 1: {"previous": 0.4}}
    page = render(planted(values, [roled(0, "previous token", 0.9)], width=3))
    table = page[page.index('<table class="grid"') : page.index("</table>")]
    cells = re.findall(r"<td([^>]*)>([^<]*)</td>", table)
    assert [text for _, text in cells] == ["−1", "−1", ""]
    assert ['class="pale"' in attributes for attributes, _ in cells] == [False, True, False]
    assert 'class="none"' in cells[2][0]
    assert [re.findall(r'title="([^"]*)"', attributes) for attributes, _ in cells] == [
        ["position"],
        ["position, tendency"],
        [],
    ]
    assert page.index('id="explore"') < page.index('id="findings"') < page.index('id="head"')


def test_the_page_begins_with_what_is_to_be_repeated_and_ends_with_the_run() -> None:
    values = {0: {"previous": 0.987, "entropy": 0.1}, 1: {"previous": 0.1, "entropy": 3.0}}
    study = planted(values, [roled(0, "previous token", 0.987)])
    page = unescape(render(study))
    text = re.sub(r"\s*<[^>]+>\s*|[ \n]+", " ", page[page.index("<h2>Key findings") :])
    text = re.sub(" +", " ", text)
    assert text.startswith(" Key findings Head 0 of layer 0 gives 98.7\u00a0% of its attention")
    assert "95\u00a0% interval 97.7 to 99.7\u00a0%; in all, 1 of 8 heads has a clear role" in text
    assert page.index('id="again"') < page.index("texts.txt sha256")
    assert page.index("Next steps</h2>") < page.index("headscope serve tiny --study .")
    assert "sha256" not in page[page.index("<body>") : page.index("<main>")]


def test_a_headline_is_one_sentence_with_one_number() -> None:
    headline = Headline("gives", percent(0.9871), "of its attention to it", "a detail", "0.2")
    assert str(headline) == "Head 2 of layer 0 gives 98.7\u00a0% of its attention to it."
    assert str(Headline("The loss rises by", "3\u00a0%")) == "The loss rises by 3\u00a0%."
    assert name_head("cross.3.11") == "Head 11 of cross layer 3"


def test_every_top_finding_about_roles_attention_and_ablation_has_a_headline() -> None:
    study = made_up()
    study.tables["roles"] = pd.DataFrame([roled(0, "broad", 0.9), roled(1, "sink", 0.8)])
    first, _ = select_top([findings_of(study)])
    assert len(first) == 3
    for finding in first:
        assert finding.headline is not None, finding.sentence
        numbers = re.findall(r"\d+(?:\.\d+)?", finding.headline.number)
        assert len(numbers) == 1
        sentence = f"{finding.headline.before} {finding.headline.after}"
        assert not re.search(r"\d\.\d", sentence), "one number a sentence"


@pytest.mark.parametrize("has_loss", [True, False])
def test_that_nothing_is_significant_comes_last_and_with_what_could_have_been_seen(
    has_loss: bool,
) -> None:
    """99 examples, standard error 0.01: Student's quantile at 0.05 / 8 over two sides, times 0.01, is 0.0279."""
    study = planted({head: {"previous": 0.3} for head in range(8)})
    tests = [
        {"stack": "encoder", "layer": 0, "head": head, "statistic": "ablation-loss"}
        | {"value": 0.001 * head, "low": 0.001 * head - 0.0198, "high": 0.001 * head + 0.0198}
        | {"p": 0.5, "p_adjusted": 1.0, "is_significant": False, "count": 99, "test": "t"}
        | {"settled_at": NAN}
        for head in range(8)
    ]
    study.tables["significance"] = pd.DataFrame(tests)
    study.record = {**study.record, "importance": {"task": "mnli", "metric": "accuracy"}}
    if has_loss:
        study.record["importance"]["intact"] = {"loss": {"value": 0.5}}
    result = findings_of(study)
    (nothing,) = (one for one in result if one.kind == "importance" and one.headline)
    assert nothing.is_null
    first, _ = select_top([result])
    assert first[0].kind != "importance"
    headline_text = str(nothing.headline)
    assert headline_text.startswith(
        "No head changes the mnli loss significantly when it is ablated alone; changes below"
    )
    number = float(nothing.headline.number) if nothing.headline else NAN
    assert number == pytest.approx(0.0279, abs=0.0005)
    assert ("(6\u00a0% of it)" in headline_text) == has_loss
    assert "99 examples" in (nothing.headline.detail if nothing.headline else "")


def test_the_head_that_is_needed_most_comes_before_one_that_does_harm() -> None:
    changes = [-0.09, 0.04, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0]
    study = planted({head: {"previous": 0.3} for head in range(8)})
    study.tables["significance"] = pd.DataFrame(
        {"stack": "encoder", "layer": 0, "head": head, "statistic": "ablation-loss"}
        | {"value": change, "low": change - 0.01, "high": change + 0.01, "p": 0.001}
        | {"p_adjusted": 0.01, "is_significant": change != 0, "count": 99, "test": "t"}
        | {"settled_at": NAN}
        for head, change in enumerate(changes)
    )
    unpruned = {"loss": {"value": 0.5}}
    study.record = {**study.record, "importance": {"task": "mnli", "intact": unpruned}}

    def headline_text() -> Headline:
        (result,) = (one for one in findings_of(study) if one.kind == "importance")
        assert result.headline is not None
        return result.headline

    assert str(headline_text()) == (
        "Head 1 of layer 0 matters most: when it is ablated, the mnli loss rises by 8\u00a0%."
    )
    assert "3 of 8 heads change the loss significantly, 2 for the worse" in headline_text().detail
    study.tables["significance"].loc[1:, "is_significant"] = False
    assert str(headline_text()) == (
        "Head 0 of layer 0 is not needed: when it is ablated, the mnli loss falls by 18\u00a0%."
    )


def test_roles_have_their_usual_terms_and_previous_token_is_not_counted_twice() -> None:
    assert role_label("broad") == "diffuse"
    assert role_label("confident") == "peaked"
    assert role_label("positional -1") == "positional −1"
    assert role_label("syntactic: nsubj") == "syntactic: nsubj"
    assert len(set(ROLE_LABELS.values())) == len(ROLE_LABELS)
    rows = [roled(0, "previous token", 0.9), roled(0, "positional -1", 0.99)]
    rows += [roled(1, "positional -1", 0.99)]
    study = planted({0: {"previous": 0.9}}, rows)
    names = {key[2]: [role.name for role in roles] for key, roles in roles_by_head(study).items()}
    assert names[0] == ["previous token"]
    assert names[1] == ["positional −1"]


def test_the_line_below_the_title_says_what_was_read() -> None:
    study = made_up({"encoder": (6, 12)})
    data = {**RECORD["data"], "used": 500, "pairs": True, "mean_length": 104.4}
    study.record = {**RECORD, "data": data, "importance": {"task": "retrieval", "examples": 64}}
    assert subtitle(study) == (
        "6 layers × 12 heads · 500 text pairs, mean 104 tokens · retrieval task, 64 examples"
    )
    study.record = {
        "treebank": {"used": 200, "files": ["x"]},
        "data": {"used": 200, "files": ["x"]},
    }
    assert subtitle(study) == "6 layers × 12 heads · 200 parsed sentences"
    study.record = {}
    assert subtitle(study) == "6 layers × 12 heads"


def test_a_model_of_the_zoo_has_its_published_name_in_the_title() -> None:
    study = made_up()
    assert full_name(study) == "tiny"
    study.record = {**RECORD, "model": {**RECORD["model"], "name": "minilm"}}
    assert full_name(study) == "all-MiniLM-L6-v2"
    assert "Attention heads of <bdi>all-MiniLM-L6-v2</bdi>" in render(study)


def test_the_command_to_copy_names_the_model_and_the_studies() -> None:
    study = made_up()
    assert explorer_command(study, ["."]) == "headscope serve tiny --study ."
    command = explorer_command(study, ["one", "two words"])
    assert command == "headscope serve tiny --study one --study 'two words'"
    study.record = {}
    assert explorer_command(study, ["."]) == ""
