"""The report: every table has its place, every figure its file, and the first findings come by their rule."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from every_table import every_table
from studies import RECORD, made_up, roled

from headscope.analysis.join import join
from headscope.report.finding import KINDS, Finding, HeadEstimate
from headscope.report.head_cards import cards_of
from headscope.report.map_colours import colourings_of
from headscope.report.page.render import render
from headscope.report.sections import figures_of, findings_of
from headscope.report.top_findings import MOST, select_top
from headscope.study.study import Study
from headscope.tables import Row, to_frame

DOCS = Path(__file__).parents[2] / "docs"
OF_COMPARISONS = {"layers", "smoothness", "matches", "matching", "changes", "layer_changes"}


@pytest.fixture(scope="module")
def page() -> str:
    return render(every_table())


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return dict(json.loads(match[1]))


def test_every_table_of_the_docs_is_in_the_study_that_is_tested() -> None:
    text = "".join(
        (DOCS / f"{name}.md").read_text("utf-8")
        for name in (
            "reference/tables",
            "explanation/importance",
            "explanation/relevance",
            "explanation/lenses",
        )
    )
    named = set(re.findall(r"[`*]+(\w+)\.csv[`*]+", text)) - {"heads"}
    assert named - OF_COMPARISONS == set(every_table().tables)


@pytest.mark.parametrize("name", sorted(every_table().tables))
def test_every_table_has_its_place_and_its_file_on_the_page(page: str, name: str) -> None:
    assert f'<span class="file">{name}.csv</span>' in page
    packed = next(one["csv"] for one in data_of(page)["tables"] if one["name"] == name)
    table = pd.read_csv(io.BytesIO(zlib.decompress(base64.b64decode(packed))))
    assert list(table.columns) == list(every_table().tables[name].columns)
    assert len(table) == len(every_table().tables[name])


def test_every_figure_has_its_numbers_on_the_page(page: str) -> None:
    study, data = every_table(), data_of(page)
    tables, statistics = (
        {one["name"] for one in data["tables"]},
        {one["name"] for one in data["statistics"]},
    )
    drawings = figures_of(study)
    assert len(drawings) > 25
    for drawing in drawings:
        source = drawing.source(study)
        assert source is not None
        kind, names = source
        available = {
            "table": tables,
            "heads": statistics,
            "map": {"encoder"},
            "offset": {"encoder"},
        }[kind]
        assert set(names) & available, drawing.name
        assert f'download="{drawing.name}.csv"' in page


def test_a_table_too_large_for_the_page_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headscope.report.page.payload.MOST_TABLE_BYTES", 2000)
    page = render(every_table())
    assert "too large for this page; the file is in" in page
    assert 0 < len(data_of(page)["tables"]) < len(every_table().tables)


def finding(kind: str, strength: float = 0.0, is_clear: bool = True) -> Finding:
    return Finding("", f"{kind} {strength:g}", (), kind=kind, strength=strength, is_clear=is_clear)


def test_one_finding_a_kind_comes_first_then_the_strongest() -> None:
    single = [
        finding("attention", 9),
        finding("attention", 1),
        finding("attention", 5),
        finding("cut", 0),
    ]
    other = [finding("cut", 7), finding("importance", 2)]
    first, rest = select_top([single, other])
    assert [(result.sentence, result.chapter) for result in first] == [
        ("importance 2", 1),
        ("cut 0", 0),
        ("attention 9", 0),
    ]
    assert [result.sentence for result in rest] == ["attention 1", "attention 5", "cut 7"]
    first, rest = select_top([single])
    assert [result.sentence for result in first] == ["cut 0", "attention 9", "attention 5"]
    assert [result.sentence for result in rest] == ["attention 1"]


def test_what_heads_do_comes_first_and_that_nothing_was_found_last() -> None:
    nothing = replace(finding("roles", 0), is_null=True)
    actual = [nothing, finding("importance", 3), finding("attention", 1)]
    assert [one.kind for one in select_top([actual])[0]] == ["importance", "attention", "roles"]
    first, rest = select_top([[*actual, finding("relations", 1)]])
    assert [one.kind for one in first] == ["relations", "importance", "attention"]
    assert rest == [nothing]
    assert select_top([[nothing]])[0] == [nothing], "if that was the only question"


def test_what_may_be_chance_is_never_among_the_first() -> None:
    first, rest = select_top([[finding("importance", 50, is_clear=False), finding("roles", 1)]])
    assert [result.sentence for result in first] == ["roles 1"]
    assert [result.sentence for result in rest] == ["importance 50"]


def test_there_are_three_at_most_and_they_go_by_kinds() -> None:
    first, rest = select_top([[finding(kind) for kind in reversed(KINDS)]])
    assert [result.kind for result in first] == list(KINDS[:MOST])
    assert len(rest) == len(KINDS) - MOST


def led(head: str, topic: str, strength: float, kind: str = "attention") -> Finding:
    return Finding(
        "", head, (HeadEstimate(head, 0.9, 0.8, 1.0),), kind=kind, strength=strength, topic=topic
    )


def test_the_first_are_about_different_heads_and_different_things() -> None:
    actual = [
        led("0.2", "", 0, kind="roles"),
        led("0.2", "positions", 99),
        led("1.8", "positions", 11),
        led("0.2", "breadth", 500),
        led("1.11", "special tokens", 2),
        led("0.5", "special tokens", 60),
        led("3.3", "similar heads", 0),
    ]
    first, rest = select_top([actual])
    assert [(one.sentence, one.topic) for one in first] == [
        ("0.2", ""),
        ("1.8", "positions"),  # the head of the other is named already
        ("0.5", "special tokens"),  # of another topic than the one before
    ]
    assert {one.strength for one in rest} == {99, 500, 2, 0}


def test_the_same_head_of_two_models_is_not_the_same_head() -> None:
    first, _ = select_top(
        [
            [led("0.2", "", 0, kind="roles")],
            [led("0.2", "positions", 1), led("1.8", "positions", 2)],
        ]
    )
    assert [(one.chapter, one.sentence) for one in first] == [(0, "0.2"), (1, "0.2"), (1, "1.8")]


def test_a_sink_is_among_the_first_though_a_head_of_positions_is_the_clearest() -> None:
    rows = [
        Row("encoder", 0, h, name, v, v - 0.01, v + 0.01, 99)
        for name, of in SINKS.items()
        for h, v in of.items()
    ]
    study = Study(to_frame(rows), tables={"roles": pd.DataFrame([roled(2, "positional -1", 0.99)])})
    first, _ = select_top([findings_of(study)])
    assert [one.heads[0].head for one in first if one.statistic in ("cls", "next")] == [
        "0.1",
        "0.3",
    ]
    assert (
        "1 of 4 heads gives more than half of its attention to the classification token. 0.3: 0.709 [0.699, 0.719]."
        in [str(one) for one in first]
    )


SINKS = {
    "previous": {0: 0.1, 1: 0.1, 2: 0.98, 3: 0.0},
    "next": {0: 0.1, 1: 0.61, 2: 0.0, 3: 0.0},
    "cls": {0: 0.1, 1: 0.1, 2: 0.0, 3: 0.709},
    "sep": {0: 0.1, 1: 0.2, 2: 0.0, 3: 0.0},
    "punctuation": {0: 0.2, 1: 0.05, 2: 0.01, 3: 0.04},
}


def test_roles_are_counted_in_heads_that_add_up_with_a_minus_sign() -> None:
    study = made_up({"encoder": (1, 12)}, ["previous"])
    names = ["broad"] * 4 + [
        "positional -1",
        "positional +1",
        "block",
        "separators",
        "punctuation",
        "itself",
    ]
    of_heads = [roled(head, name, 0.6 + head / 100) for head, name in enumerate(names)]
    study.tables["roles"] = pd.DataFrame(
        [*of_heads, roled(4, "previous token", 0.7), roled(4, "confident", 0.9)]
    )
    (result,) = (str(one) for one in findings_of(study) if one.kind == "roles")
    assert result == (
        "10 of 12 heads have a clear role. 0.4: 0.700 [0.690, 0.710] is the clearest (previous token). Heads by main "
        "role: 4 diffuse (above 0.5), 1 previous token (above 0.5), 1 positional +1 (above 0.5), 1 block (above 0.5), "
        "1 separators (above 0.5) and 2 with other roles. A role is clear if its whole 95 % interval is above the "
        "threshold of the role."
    )
    study.tables["roles"] = study.tables["roles"][4:5]
    (result,) = (str(one) for one in findings_of(study) if one.kind == "roles")
    assert "Heads by main role: 1 positional −1 (above 0.5)." in result
    assert "is the clearest (positional −1)" in result
    assert cards_of(study)["heads"][0][4]["roles"][0]["role"] == "positional −1"


def test_the_finding_and_the_map_say_what_their_counts_of_roles_are_of() -> None:
    """Three heads are above the threshold, two with their whole interval; a relation's threshold differs by head."""
    study = made_up({"encoder": (1, 6)}, ["previous"])
    unsure = roled(2, "sink", 0.505) | {"is_sure": False}
    study.tables["roles"] = pd.DataFrame([roled(0, "sink", 0.8), roled(1, "sink", 0.9), unsure])
    (result,) = (str(one) for one in findings_of(study) if one.kind == "roles")
    assert result.startswith("2 of 6 heads have a clear role. 0.1: ")
    assert "Heads by main role: 2 sink (above 0.5). A role is clear if" in result
    assert result.endswith(
        "The map also counts heads of which only the value is above it: 3 in total."
    )
    (colouring,) = colourings_of(study)
    labels = [(label["text"], label["heads"]) for label in colouring["labels"]]
    assert labels == [("position, tendency", 1), ("sink", 3)]
    assert "a role whose value is above its threshold" in colouring["definition"]
    other = roled(1, "sink", 0.9) | {"threshold": 0.6}
    study.tables["roles"] = pd.DataFrame([roled(0, "sink", 0.8), other])
    assert "by main role: 2 sink. A role is clear" in next(
        str(one) for one in findings_of(study) if one.kind == "roles"
    )


def test_an_unreliable_order_of_heads_is_reported_without_importance_scores() -> None:
    """Ceiling 0.504 on 24 examples: by Spearman and Brown 24 * (0.64 / 0.36) * ((1 - r) / r), r = 0.504 ** 2."""
    study = made_up(statistics=["previous"])
    row = {"stack": "encoder", "ceiling": 0.504, "heads": 8, "count": 24}
    study.tables["ceilings"] = pd.DataFrame([row])
    (result,) = (str(one) for one in findings_of(study) if one.topic == "scores")
    assert result == (
        "Ablation is too noisy to rank the heads. With 24 examples, even the true importance "
        "scores would correlate with ablation at only 0.50 (noise ceiling). It must be at "
        "least 0.8 to rank heads: about 126 examples are needed."
    )
    study.tables["ceilings"] = pd.DataFrame([row | {"stack": "decoder"}, row | {"ceiling": 0.9}])
    (result,) = (str(one) for one in findings_of(study) if one.topic == "scores")
    assert result.startswith("Ablation is too noisy to rank the heads of the decoder stack")
    study.tables["ceilings"] = pd.DataFrame([row | {"ceiling": 0.9}])
    assert not [one for one in findings_of(study) if one.topic == "scores"]


def test_every_kind_of_a_full_study_is_found() -> None:
    kinds = {result.kind for result in findings_of(every_table())}
    assert kinds == set(KINDS) - {"models", "warning"}


def _relation(low: float) -> list[Finding]:
    study = every_table()
    study.tables["relations"] = study.tables["relations"][:1].assign(
        accuracy=0.7, low=low, baseline=0.4, control=0.3
    )
    return [one for one in findings_of(study) if " links " in one.sentence]


def test_a_relation_is_clear_only_where_its_interval_is_above_the_baseline() -> None:
    assert [one.is_clear for one in _relation(0.5)] == [True]
    assert [one.is_clear for one in _relation(0.39)] == [False]


def test_the_cut_is_reported_with_the_score_of_the_whole_model_and_heads_that_cost_nothing() -> (
    None
):
    study = every_table()
    row = study.tables["front"].iloc[1].to_dict()
    free = row | {
        "removed": 3,
        "left": 5,
        "is_chosen": False,
        "metric_change": 0.0,
        "change_low": -0.005,
    }
    study.tables["front"] = pd.DataFrame([row, free | {"change_high": 0.005}])
    study.record["pruning"] |= {"intact": {"report": {"accuracy": {"value": 0.9}}}}
    (summary,) = (
        str(one)
        for one in findings_of(study)
        if one.sentence.startswith("With 1 of 8 heads pruned")
    )
    assert summary == (
        "With 1 of 8 heads pruned, accuracy on dev:half-b changes by −0.1000. Accuracy 0.8000 (0.9000 with all heads); "
        "change of −0.1000 [−0.2000, −0.0500]: more than the allowed loss of 0.0090 (1 % of 0.9000); the model is 1.11 "
        "times as fast [1.00, 1.25]; 3 pruned heads are within the allowed loss: change of +0.0000 [−0.0050, +0.0050]; "
        "this set was picked on dev:half-b, so judge it on a third split."
    )


def test_the_map_is_coloured_by_role_importance_cut_and_cluster() -> None:
    study = every_table()
    study.heads.loc[study.heads["statistic"] == "cut", "value"] = [0, 1, 0, 0, 0, 0, 0, 1]
    result = {one["title"]: one for one in colourings_of(study)}
    assert list(result) == ["main role", "effect of ablation", "cut", "cluster"]
    labels = [one["text"] for one in result["cut"]["labels"]]
    assert [labels[cell[0]] for cell in result["cut"]["stacks"][0]] == [
        "pruned" if i in (1, 7) else "kept" for i in range(8)
    ]
    assert result["effect of ablation"]["stacks"][0][1] == [0, "★"]
    assert result["effect of ablation"]["labels"][0]["text"] == "worse without it"
    assert result["main role"]["stacks"][0][7][1] == "nsubj"
    assert [cell for cell in result["cluster"]["stacks"][0] if cell] == [[0, "0"], [0, "0"]]


def reported(
    low: float, high: float, *, keep_metric: float | None = None, others: Sequence[Any] = ()
) -> str:
    """The finding about four of eight heads cut, by the interval of their change, on 150 examples."""
    study = every_table()
    middle = (low + high) / 2
    row = study.tables["front"].iloc[1].to_dict() | {
        "removed": 4,
        "left": 4,
        "metric": 0.85 + middle,
    }
    row |= {"metric_change": middle, "change_low": low, "change_high": high}
    study.tables["front"] = pd.DataFrame(
        [row, *(row | {"is_chosen": False} | other for other in others)]
    )
    study.record["pruning"] |= {
        "target": {"keep_metric": keep_metric},
        "reported_on": {"split": "dev:half-b", "examples": 150},
        "intact": {"report": {"accuracy": {"value": 0.85}}},
    }
    (summary,) = (
        str(one)
        for one in findings_of(study)
        if one.sentence.startswith("With 4 of 8 heads pruned")
    )
    return summary


def test_a_drop_that_few_examples_cannot_rule_out_is_no_recommendation() -> None:
    record = reported(-0.0386, 0.0002)
    assert "change of −0.0192 [−0.0386, +0.0002]" in record
    assert (
        "150 examples are too few to tell whether that is within the allowed loss of 0.0085 (1 % of 0.8500)"
        in record
    )
    assert "about 1,600 would do; " in record
    assert "no evidence" not in record


def test_a_set_shown_to_lose_nothing_beyond_the_margin_is_reported_as_such() -> None:
    assert "[−0.0080, +0.0040]: within the allowed loss of 0.0085 (1 % of 0.8500)" in reported(
        -0.008, 0.004
    )
    assert "more than the allowed loss of 0.0085" in reported(-0.0386, -0.01)
    assert "within the allowed loss of 0.0425 (5 % of 0.8500)" in reported(
        -0.0386, 0.0002, keep_metric=0.95
    )


def test_of_other_sets_the_largest_within_the_allowed_loss_is_reported() -> None:
    kept = {"metric_change": -0.001, "change_low": -0.004, "change_high": 0.002}
    smaller, larger = {"removed": 3, "left": 5} | kept, {"removed": 5, "left": 3} | kept
    assert (
        "; 3 pruned heads are within the allowed loss: change of −0.0010 [−0.0040, +0.0020]"
        in reported(-0.0386, 0.0002, others=[smaller])
    )
    assert "3 pruned heads" not in reported(-0.008, 0.004, others=[smaller]), (
        "the set cut is larger, and within it too"
    )
    assert "; 5 pruned heads are within the allowed loss" in reported(
        -0.008, 0.004, others=[smaller, larger]
    )


def test_a_card_shows_importance_and_the_fixed_pattern_that_replaces_the_head() -> None:
    study = every_table()
    where = {"stack": "encoder", "layer": 0, "head": 1, "task": "mnli"}
    row = where | {"pattern": "previous", "loss_change": 0.03, "low": 0.01, "high": 0.05}
    study.tables["substitutes"] = pd.DataFrame([row])
    lines = [
        one["what"] + ": " + one["text"] + one["after"]
        for one in cards_of(study)["heads"][0][1]["importance"]
    ]
    assert lines == [
        "change of the nsubj loss when this head is ablated: 0.200 [0.100, 0.300] (uncorrected interval); p 0.010, "
        "p (Holm) 0.020: ★ significant",
        "change of the mnli loss with the fixed pattern “previous”: 0.0300 [0.0100, 0.0500]",
    ]


def two_models(word: str = "nsubj") -> list[Study]:
    other = every_table(word)
    other.record = other.record | {"command": "headscope again"}
    other.tables["mixing"] = other.tables["mixing"].assign(value=0.9)
    third = made_up(
        statistics=["previous", "entropy", "cls"],
        record=RECORD | {"model": {"name": word, "sha256": "0"}},
    )
    return [every_table(word), other, third]


def test_what_another_study_of_the_model_says_of_its_own_task_is_found_too() -> None:
    first, other = every_table(), every_table()
    other.record = other.record | {"importance": other.record["importance"] | {"task": "stsb"}}
    other.tables["significance"] = other.tables["significance"].assign(value=0.7)
    lines = [
        " ".join(re.findall(r"the (\w+) loss significantly", str(finding)))
        for finding in findings_of(other)
    ]
    assert "stsb" in lines
    page = render(join([first, other]))
    assert "the stsb loss significantly" in page
    assert page.count("the stsb loss significantly") == 1


@pytest.mark.slow
def test_two_models_and_a_study_more_of_one_are_one_page() -> None:
    page = render(join(two_models()))
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    links = set(re.findall(r'href="#([^"]+)"', page)) - {"data"}
    assert links <= set(ids)
    assert "How much each layer mixes tokens · study 2" in page
    assert "mixing (study 2).csv" in page
    assert page.count('class="study-data"') == 2
    assert "Heads matched by behaviour" in page
    assert page == render(join(two_models()))


def test_all_figures_are_written_as_png_on_demand(tmp_path: Path) -> None:
    study = made_up(statistics=["previous", "entropy"])
    written = join([study]).write_figures(tmp_path / "pictures")
    files = {file.stem: file for file in written.glob("*.png")}
    assert set(files) == {figure.name for figure in figures_of(study)} != set()
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files.values())


def test_the_figures_of_several_models_have_the_name_of_the_model(tmp_path: Path) -> None:
    studies = [
        made_up(statistics=["previous"], has_maps=False, record={"model": {"name": name}})
        for name in ("first", "second")
    ]
    written = join(studies).write_figures(tmp_path / "pictures")
    stems = {file.stem for file in written.glob("*.png")}
    assert {"first-heat-previous", "second-heat-previous"} <= stems
