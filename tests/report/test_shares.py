"""Shares in findings: relative to uniform attention, with the length of texts, punctuation and shared heads."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from studies import made_up, roled

import headscope
from headscope.analysis.join import join
from headscope.model.natural_language import is_natural_language
from headscope.report.finding import Finding, HeadEstimate
from headscope.report.page.chapter import describe_study
from headscope.report.page.comparison import comparison_view
from headscope.report.page.comparison import findings_of as compared
from headscope.report.page.render import render
from headscope.report.run_facts import corpus_facts, model_facts, summary
from headscope.report.sections import findings_of
from headscope.study.lengths import length_note
from headscope.study.run_record import describe_model
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from planted_decoder import planted_decoder, texts
from tiny import shared, tiny


def attending(statistic: str, values: dict[tuple[int, int], float], **record: object) -> Study:
    rows = [
        Row("encoder", layer, head, statistic, v, v - 0.01, v + 0.01, 99)
        for (layer, head), v in values.items()
    ]
    return Study(to_frame(rows), record=dict(record))


def about(study: Study, statistic: str) -> list[Finding]:
    return [one for one in findings_of(study) if one.statistic == statistic]


# Uniform attention


def test_a_finding_says_how_many_times_uniform_a_share_is() -> None:
    study = attending("cls", {(0, 0): 0.7, (0, 1): 0.1})
    study.tables["uniform"] = pd.DataFrame(
        [{"stack": "encoder", "layer": 0, "statistic": "cls", "value": 0.0095, "count": 99}]
    )
    (finding,) = about(study, "cls")
    assert str(finding) == (
        "1 of 2 heads gives more than half of its attention to the classification token. "
        "0.0: 0.700 [0.690, 0.710], 74 times uniform."
    )
    note = "the same weight on all visible tokens would have on the same texts"
    assert note in render(study)
    del study.tables["uniform"]
    assert note not in render(study)


@pytest.mark.parametrize(
    ("value", "uniform", "message"),
    [
        (0.5, 0.4, "1.2 times uniform"),
        (0.5, 0.05, "10 times uniform"),
        (0.5, 0.0, ""),
        (0.5, float("nan"), ""),
    ],
)
def test_multiples_of_uniform(value: float, uniform: float, message: str) -> None:
    shown = HeadEstimate("0.0", value, float("nan"), float("nan"), uniform=uniform).text()
    assert shown == "0.500" + (f", {message}" if message else "")


def test_the_page_s_cards_carry_what_uniform_attention_gives() -> None:
    study = made_up(statistics=["cls", "entropy"])
    rows = [
        {"stack": "encoder", "layer": layer, "statistic": "cls", "value": 0.02, "count": 9}
        for layer in (0, 1)
    ]
    study.tables["uniform"] = pd.DataFrame(rows)
    data = json.loads(
        re.search(r'class="study-data"[^>]*>(.*?)</script>', render(study), re.DOTALL)[1]
    )
    by_name = {one["name"]: one["uniform"] for one in data["statistics"]}
    assert by_name == {"cls": [[0.02, 0.02]], "entropy": [[]]}


def test_the_finding_about_the_first_token_counts_heads_of_a_decoder() -> None:
    study = headscope.analyze(planted_decoder(), texts=texts(40))
    (finding,) = about(study, "first")
    assert (
        finding.sentence == "2 of 6 heads give more than half of their attention to the first token"
    )
    assert {measured.head for measured in finding.heads} == {"0.0", "2.1"}
    assert all(
        re.search(r"\], \d\.\d times uniform$", measured.text()) for measured in finding.heads
    )


def test_the_first_token_is_not_listed_twice_where_it_is_the_classification_token() -> None:
    rows = [Row("encoder", 0, 0, name, 0.9, 0.8, 1.0, 99) for name in ("cls", "first")]
    assert not about(Study(to_frame(rows)), "first")


# Lengths


def test_the_record_and_the_header_have_the_length_of_texts() -> None:
    made = texts(40)
    lengths = [len(text.split()) for text in made]
    study = headscope.analyze(planted_decoder(), texts=made, statistics=["first"])
    data = study.record["data"]
    assert (data["shortest"], data["longest"]) == (min(lengths), max(lengths))
    assert data["mean_length"] == pytest.approx(sum(lengths) / 40, abs=0.01)
    mean = f"{sum(lengths) / 40:.0f}"
    assert (
        "length of texts",
        f"{mean} tokens on average, {min(lengths)} to {max(lengths)}",
    ) in corpus_facts(study)
    assert f"tokens, {mean} in each on average)" in describe_study(study)
    assert f"{mean} tokens on average, {min(lengths)} to {max(lengths)}" in render(study)


def lengths_of(**lengths: float) -> list[tuple[str, dict]]:
    return [(name, {"data": {"mean_length": length}}) for name, length in lengths.items()]


def test_studies_of_different_lengths_are_noted() -> None:
    assert length_note(lengths_of(pairs=104, sentences=17)).startswith(
        "The texts differ in length (tokens on average: pairs 104, sentences 17)."
    )
    assert length_note(lengths_of(a=104, b=90)) == ""
    assert length_note(
        [("a", {"data": {"tokens": 900, "sequences": 9}}), ("b", {"data": {"mean_length": 10}})]
    )
    assert length_note([("a", {}), ("b", {"data": {"mean_length": 10}})]) == ""


def test_a_report_of_different_lengths_says_so_next_to_its_findings() -> None:
    first, other = made_up(statistics=["cls"]), made_up(statistics=["sep"])
    first.record = {**first.record, "data": {**first.record["data"], "mean_length": 104.0}}
    other.record = {**other.record, "data": {**other.record["data"], "mean_length": 17.2}}
    page = render(join([first, other]))
    assert '<p class="note lengths">The texts differ in length' in page
    assert page.index('class="note lengths"') < page.index('id="head"')
    other.record["data"]["mean_length"] = 100.0
    assert 'class="note lengths"' not in render(join([first, other]))


# Punctuation


@pytest.mark.parametrize(("is_natural", "expected"), [(True, 1), (False, 0), (None, 1)])
def test_punctuation_is_reported_for_natural_language_only(
    is_natural: bool | None, expected: int
) -> None:
    record = {} if is_natural is None else {"natural_language": is_natural}
    study = attending("punctuation", {(0, 0): 0.7, (0, 1): 0.1}, model=record)
    assert len(about(study, "punctuation")) == expected


def test_no_head_of_a_model_of_symbols_has_the_role_punctuation() -> None:
    from headscope.analysis.roles import roles_of

    study = attending("punctuation", {(0, 0): 0.9}, model={"natural_language": True})
    assert set(roles_of(study)["role"]) == {"punctuation"}
    study.record["model"]["natural_language"] = False
    assert set(roles_of(study)["role"]) == {"undetermined"}


def test_special_tokens_of_a_model_of_symbols_are_still_reported() -> None:
    study = attending("sep", {(0, 0): 0.7, (0, 1): 0.1}, model={"natural_language": False})
    assert len(about(study, "sep")) == 1


def test_the_record_says_of_what_kind_the_vocabulary_is() -> None:
    model = planted_decoder()
    tokens = [word for word in model.tokenizer.get_vocab() if not word.startswith("<")]
    assert describe_model(model)["natural_language"] is is_natural_language(tokens) is True
    assert "natural_language" not in describe_model(shared("vit"))


# Shared layers

SHARED = {"shared_layers": {"encoder": [[0, 1, 2]]}}


def test_shared_layers_are_found_by_their_module() -> None:
    model = tiny("albert", num_hidden_layers=3)
    assert describe_model(model)["shared_layers"] == {"encoder": [[0, 1, 2]]}
    groups = tiny("albert", num_hidden_layers=4, num_hidden_groups=2)
    assert describe_model(groups)["shared_layers"] == {"encoder": [[0, 1], [2, 3]]}
    assert "shared_layers" not in describe_model(shared("bert"))
    assert "shared_layers" not in describe_model(
        shared("xlnet")
    )  # two streams of one layer are no two layers


def test_a_shared_head_is_counted_once_with_its_sites() -> None:
    values = {(layer, head): 0.1 for layer in range(3) for head in range(4)}
    values |= {(0, 3): 0.8, (1, 3): 0.9, (2, 3): 0.7, (2, 1): 0.6}
    (finding,) = about(attending("previous", values, model=SHARED), "previous")
    assert finding.sentence == (
        "2 of 4 shared heads (4 of 12 sites) give more than half of their attention to the previous token, each at its "
        "strongest site"
    )
    assert [measured.head for measured in finding.heads] == ["1.3", "2.1"]
    assert finding.more == 0
    alone = attending("previous", values | {(2, 1): 0.1}, model=SHARED)
    assert about(alone, "previous")[0].sentence.startswith(
        "1 of 4 shared heads (3 of 12 sites) gives more than half"
    )


def test_roles_of_shared_heads_are_counted_once() -> None:
    study = attending(
        "previous", {(layer, head): 0.1 for layer in range(3) for head in range(4)}, model=SHARED
    )
    roles = [roled(3, "previous token", 0.8) | {"layer": layer} for layer in range(3)]
    study.tables["roles"] = pd.DataFrame([*roles, roled(0, "broad", 0.9)])
    (finding,) = (one for one in findings_of(study) if one.kind == "roles")
    assert finding.sentence.startswith("2 of 4 shared heads (4 of 12 sites) have a clear role")
    assert (
        "1 (3 sites) previous token (above 0.5) and 1 (1 site) diffuse (above 0.5)" in finding.after
    )


def test_two_sites_of_one_head_are_not_two_heads_that_attend_alike() -> None:
    study = attending(
        "previous", {(layer, head): 0.1 for layer in range(3) for head in range(4)}, model=SHARED
    )
    near = {
        "stack": "encoder",
        "layer": 1,
        "head": 2,
        "twin_layer": 2,
        "twin_head": 2,
        "twin_distance": 0.01,
    }
    further = near | {"layer": 0, "head": 1, "twin_layer": 2, "twin_head": 3, "twin_distance": 0.2}
    study.tables["clusters"] = pd.DataFrame([near, further])
    (finding,) = (one for one in findings_of(study) if one.topic == "similar heads")
    assert [measured.head for measured in finding.heads] == ["0.1", "2.3"]
    study.tables["clusters"] = pd.DataFrame([near])
    assert not [one for one in findings_of(study) if one.topic == "similar heads"]


def test_removals_of_shared_heads_are_counted_once() -> None:
    study = attending(
        "ablation-loss",
        {(layer, head): 0.1 for layer in range(3) for head in range(4)},
        model=SHARED,
    )
    tested = {"statistic": "ablation-loss", "low": 0.1, "high": 0.3, "count": 99, "value": 0.2}
    study.tables["significance"] = pd.DataFrame(
        [
            tested | {"stack": "encoder", "layer": layer, "head": head, "is_significant": head == 3}
            for layer in range(3)
            for head in range(4)
        ]
    )
    (finding,) = (one for one in findings_of(study) if one.kind == "importance")
    assert finding.sentence.startswith("1 of 4 shared heads (3 of 12 sites) changes ")


def test_roles_over_training_count_shared_heads_once() -> None:
    """Head 3 becomes positional at all three sites, and head 0 is broad at one site all the while."""
    values = {(layer, head): 0.1 for layer in range(3) for head in range(4)}
    study = attending("previous", values, model=SHARED)
    positional = [
        roled(3, "previous token", 0.8) | {"layer": layer, "step": 9} for layer in range(3)
    ]
    broad = [roled(0, "broad", 0.9) | {"step": step} for step in (0, 9)]
    study.tables["film"] = pd.concat([study.heads.assign(step=step) for step in (0, 9)])
    study.tables["film_roles"] = pd.DataFrame([*positional, *broad])
    (finding,) = (one for one in findings_of(study) if one.kind == "training")
    assert str(finding) == (
        "From step 0 to step 9 of the training, the number of heads with a clear role went from 1 to 2 of 4 shared "
        "heads (4 of 12 sites). Positional 0 to 1, diffuse 1 to 1; the first positional head appeared at step 9."
    )


def test_a_comparison_counts_shared_heads_once() -> None:
    shared_study, plain_study = (made_up({"encoder": (3, 4)}) for _ in range(2))
    for name, study in (("shared", shared_study), ("plain", plain_study)):
        model = {**study.record["model"], "name": name, **(SHARED if name == "shared" else {})}
        study.record = {**study.record, "model": model}
        roles = [roled(3, "previous token", 0.8) | {"layer": layer} for layer in range(3)]
        study.tables["roles"] = pd.DataFrame([*roles, roled(0, "broad", 0.9)])
    comparison = headscope.compare([shared_study, plain_study])
    headings, rows = comparison_view(comparison, [])["roles"]
    assert headings == ["role", "shared", "plain"]
    assert rows == [
        ["previous token", "1 of 4 shared heads (3 of 12 sites)", "3 of 12"],
        ["diffuse", "1 of 4 shared heads (1 of 12 sites)", "1 of 12"],
    ]
    matched = next(one.sentence for one in compared(comparison) if "matched" in one.sentence)
    assert matched.startswith(
        "12 heads (counted once per layer) of shared are matched to heads of plain; their statistics differ by"
    )


def test_the_header_tells_shared_heads_from_sites() -> None:
    study = attending(
        "previous", {(layer, head): 0.1 for layer in range(3) for head in range(4)}, model=SHARED
    )
    assert summary(study) == "4 shared heads at 12 sites: encoder 3 layers × 4 heads"
    assert model_facts(study)[0] == ("model", summary(study))
    study.record = {}
    assert summary(study) == "12 heads: encoder 3 layers × 4 heads"
