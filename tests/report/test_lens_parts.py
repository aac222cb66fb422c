"""The sections and figures of other lenses: conclusions first, tables to compare, axes that say what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every_table import every_table
from matplotlib.figure import Figure
from studies import RECORD

from headscope.report.page.render import render
from headscope.report.sections import figures_of, findings_of, parts_of
from headscope.report.table_cells import Part
from headscope.study.study import Study
from headscope.tables import Row, to_frame

PLACE = {"stack": "encoder", "layer": 0}
MEASURED = {"value": 0.4, "low": 0.3, "high": 0.5, "count": 40}


def study_of(
    tables: dict[str, list[dict[str, Any]]], values: dict[str, list[float]] | None = None
) -> Study:
    """values: of each statistic, by layer, the same for two heads."""
    rows = [
        Row("encoder", layer, head, name, value, value, value, 9)
        for name, of_layers in (values or {"cls": [0.1, 0.2]}).items()
        for layer, value in enumerate(of_layers)
        for head in range(2)
    ]
    record = RECORD | {"importance": {"task": "stsb", "examples": 32}}
    return Study(
        to_frame(rows), {}, record, {name: pd.DataFrame(some) for name, some in tables.items()}
    )


def part_of(study: Study, name: str) -> Part:
    (part,) = (one for one in parts_of(study) if one.name == name)
    return part


def figure_of(study: Study, name: str) -> Figure:
    (drawing,) = (one for one in figures_of(study) if one.name == name)
    return drawing.draw(study)


def caption_of(study: Study, name: str) -> str:
    (drawing,) = (one for one in figures_of(study) if one.name == name)
    return drawing.caption


# Effective attention by length


def lengths(bins: list[int], record: dict[str, Any] | None = None) -> Study:
    study = study_of({"effective_lengths": [PLACE | {"up_to": one} | MEASURED for one in bins]})
    study.record = study.record | (record or {})
    return study


def test_the_width_of_heads_is_marked_among_lengths() -> None:
    study = lengths([96, 128], {"lenses": {"effective": {"width": {"encoder": 32}}}})
    (ax,) = figure_of(study, "effective-lengths").axes
    assert "width of a head: 32" in [text.get_text() for text in ax.texts]
    assert [32, 32] in [list(line.get_xdata()) for line in ax.lines]
    assert ax.get_xlim()[0] < 32


def test_the_width_of_heads_is_the_rank_of_values_in_older_studies() -> None:
    study = lengths([96, 128])
    study.heads = study_of({}, {"rank@effective": [31.0, 32.0]}).heads
    (ax,) = figure_of(study, "effective-lengths").axes
    assert "width of a head: 32" in [text.get_text() for text in ax.texts]


def test_few_lengths_are_reported_with_how_to_see_the_curve() -> None:
    message = "These texts have only 65 to 128 tokens; for other lengths"
    assert message in caption_of(lengths([96, 128]), "effective-lengths")
    assert "effective_by_length.py" in caption_of(lengths([96, 128]), "effective-lengths")
    assert "only 1 to 16 tokens" in part_of(lengths([16]), "lengths").note
    assert "These texts" not in caption_of(lengths([32, 64, 96, 128]), "effective-lengths")


# Agreement with exact removal


def lenses(*result: tuple[float, float, float], ceilings: tuple[float, ...] = (0.29,)) -> Study:
    """Rows of lenses.csv, one statistic, in turn from the stacks that have these ceilings."""
    stacks = [("encoder", "decoder")[i % len(ceilings)] for i in range(len(result))]
    rows = [
        {
            "stack": stack,
            "statistic": f"s{i}",
            "lens": "norm",
            "correlation": value,
            "low": low,
            "high": high,
        }
        | {"ceiling": ceilings[i % len(ceilings)], "heads": 72}
        for i, (stack, (value, low, high)) in enumerate(zip(stacks, result, strict=True))
    ]
    return study_of({"lenses": rows})


def test_where_no_interval_excludes_0_that_is_reported_first_with_the_ceiling() -> None:
    study = lenses((0.1, -0.1, 0.3), (-0.2, -0.4, 0.1))
    message = (
        "No statistic through any lens correlates significantly with ablation. Correlations tested: 2; "
        "noise ceiling with 32 examples: 0.29; about 620 examples are needed"
    )
    assert part_of(study, "lens-agreement").lead == f"{message}."
    (finding,) = (one for one in findings_of(study) if one.kind == "lenses")
    assert str(finding) == f"{message}."
    assert finding.is_clear


def test_more_examples_are_not_asked_for_where_there_are_enough() -> None:
    note = part_of(lenses((0.1, -0.1, 0.3), ceilings=(0.95,)), "lens-agreement").lead
    assert "noise ceiling with 32 examples: 0.95." in note
    assert "are needed" not in note


def test_correlations_that_differ_from_0_are_counted_and_the_strongest_named() -> None:
    study = lenses((0.1, -0.1, 0.3), (-0.5, -0.7, -0.2), (0.3, 0.1, 0.5))
    (finding,) = (one for one in findings_of(study) if one.kind == "lenses")
    assert (
        finding.sentence == "2 of 3 statistics through lenses correlate significantly with ablation"
    )
    assert "s1 through norm: −0.500 [−0.700, −0.200]" in finding.after
    assert "0.29" in finding.after
    assert finding.after.endswith("; about 620 examples are needed")
    assert (finding.is_clear, finding.strength) == (False, pytest.approx(2.0)), (
        "the ceiling is below 0.8"
    )


def test_the_strongest_row_comes_first_and_what_is_constant_has_no_column() -> None:
    part = part_of(
        lenses((0.1, -0.1, 0.3), (-0.5, -0.7, -0.2), (np.nan, np.nan, np.nan)), "lens-agreement"
    )
    assert part.columns == ("statistic", "lens", "correlation [interval over heads]")
    assert [row[0].text for row in part.rows] == ["s1", "s0", "s2"]
    several = part_of(
        lenses((0.1, -0.1, 0.3), (-0.5, -0.7, -0.2), ceilings=(0.3, 0.6)), "lens-agreement"
    )
    assert several.columns == (
        "stack",
        "statistic",
        "lens",
        "correlation [interval over heads]",
        "ceiling",
    )
    assert [row[-1].text for row in several.rows] == ["0.600", "0.300"]


def test_two_intervals_of_one_correlation_say_over_what_they_are() -> None:
    study = every_table()
    parts = {part.name: part for part in parts_of(study)}
    assert "correlation [interval over examples]" in parts["agreement"].columns
    assert "correlation [interval over heads]" in parts["lens-agreement"].columns
    assert "resamples examples instead" in parts["lens-agreement"].note
    del study.tables["agreement"]
    assert "resamples examples instead" not in part_of(study, "lens-agreement").note
    assert "intervals over heads" in caption_of(study, "agree-lenses")


# Separators


def gradients(value: float) -> Study:
    measures = {"attention": 0.4, "uniform": 0.02, "gradient-ratio": value, "weighted-ratio": value}
    measures |= {"centred-ratio": value}
    rows = [
        {"stack": "encoder", "layer": layer, "class": "sep", "measure": measure, "value": one}
        | {"low": one * 0.9, "high": one * 1.1, "count": 9}
        for layer in range(3)
        for measure, one in measures.items()
    ]
    return study_of({"gradients": rows})


@pytest.mark.parametrize("value", [0.003, 0.05, 0.6, 3.0])
def test_a_logarithmic_axis_looks_like_one_and_has_the_threshold(value: float) -> None:
    share, raw, weighted, centred = figure_of(gradients(value), "no-op-gradients").axes
    assert "log scale" not in share.get_ylabel()
    for ax in (raw, weighted, centred):
        assert "log scale" in ax.get_ylabel()
        bottom, above = ax.get_ylim()
        assert 3 <= len([tick for tick in ax.get_yticks() if bottom <= tick <= above]) <= 8
        assert bottom <= 0.9 * value
        assert above >= max(value, 1)
    for ax in (raw, centred):
        assert [0.5, 0.5] in [list(line.get_ydata()) for line in ax.lines]
        assert "small: below 0.5" in [text.get_text() for text in ax.texts]
    assert not weighted.texts


def test_the_section_asks_of_any_sink_and_keeps_its_anchor() -> None:
    part = part_of(gradients(0.1), "no-op")
    assert part.heading == "Is attention to separators, or to another sink, a no-op?"
    assert part.lead.startswith("Separators draw much attention, and attention to them is a no-op")
    page = render(gradients(0.1))
    assert 'id="part-no-op"' in page
    assert page.index('<p class="lead">Separators draw') < page.index('id="figure-no-op-gradients"')


# Mixing


def test_mixing_has_kobayashi_s_order_and_words() -> None:
    forms = ("norm", "norm-layernorm", "norm-residual", "weight", "weight-residual")
    study = study_of(
        {
            "mixing": [
                PLACE | {"form": form} | MEASURED | {"value": i / 10}
                for i, form in enumerate(forms)
            ]
        }
    )
    words = [
        "weights",
        "norm",
        "weights + residual",
        "norm + residual",
        "norm + residual + LayerNorm",
    ]
    part = part_of(study, "mixing")
    assert list(part.columns) == ["layer", *words]
    assert [cell.key for cell in part.rows[0][1:]] == [0.3, 0.0, 0.4, 0.2, 0.1]
    assert [text.get_text() for text in figure_of(study, "mixing").legends[0].get_texts()] == words


# Lenses side by side


def test_a_statistic_is_a_block_with_its_lenses_side_by_side() -> None:
    values = {
        "cls": [0.1, 0.2],
        "sep": [0.3, 0.4],
        "cls@norm": [0.5, 0.6],
        "cls@effective": [0.7, -0.8],
    }
    part = part_of(study_of({}, values), "lenses")
    assert part.columns == ("statistic", "layer", "raw", "norm", "effective")
    assert [[cell.text for cell in row] for row in part.rows] == [
        ["cls", "0", "0.100", "0.500", "0.700"],
        ["cls", "1", "0.200", "0.600", "−0.800"],
        ["sep", "0", "0.300", "–", "–"],
        ["sep", "1", "0.400", "–", "–"],
    ]


def test_rank_and_row_totals_are_shown_where_they_vary_whole_numbers_as_such() -> None:
    same = {"cls": [0.1, 0.2], "rank@effective": [32.0, 32.0], "row-total@norm": [1.0, 1.0001]}
    assert {row[0].text for row in part_of(study_of({}, same), "lenses").rows} == {"cls"}
    varied = same | {"rank@effective": [32.0, 30.0], "row-total@effective": [0.5, 0.6]}
    rows = [[cell.text for cell in row] for row in part_of(study_of({}, varied), "lenses").rows]
    assert rows[2:] == [
        ["row-total", "0", "–", "0.500", "–"],
        ["row-total", "1", "–", "0.600", "–"],
        ["rank", "0", "–", "32", "–"],
        ["rank", "1", "–", "30", "–"],
    ]


# Examples


def example(**changes: Any) -> Study:
    row = {
        "stack": "encoder",
        "layer": 0,
        "head": 1,
        "lens": "norm",
        "words": '["[CLS]", "a<b", "cat", "sat"]',
    }
    row |= {
        "query": 2,
        "raw_key": 0,
        "raw_weight": 0.9,
        "raw_key_through": 0.02,
        "lens_key": 1,
        "lens_weight": 0.4,
    }
    row |= {"lens_key_raw": 0.01, "keys": 100, "apart": 0.8}
    return study_of({"lens_examples": [row | changes]})


def test_the_token_that_looks_and_both_keys_are_marked() -> None:
    study = example()
    (row,) = part_of(study, "lens-examples").rows
    assert row[2].marked == (("[CLS]", "key"), ("a<b", "through"), ("cat", "query"), ("sat", ""))
    assert (row[3].text, row[4].text) == ("[CLS] 0.90, through it 0.02", "a<b 0.40, raw 0.01")
    page = render(study)
    assert (
        '<span class="key">[CLS]</span> <span class="through">a&lt;b</span> <span class="query">cat</span> sat'
        in page
    )
    assert '<span class="through">largest through the lens</span>' in page


def test_one_token_can_have_several_marks() -> None:
    (row,) = part_of(example(lens_key=0, query=0), "lens-examples").rows
    assert row[2].marked[0] == ("[CLS]", "query key through")


def test_a_row_without_a_peak_is_spread_evenly() -> None:
    (row,) = part_of(example(lens_weight=-0.029), "lens-examples").rows
    assert row[4].text == "spread evenly (at most 0.03)"
    assert row[2].marked[1] == ("a<b", "")
    study = example(lens_weight=0.001)
    study.tables["lens_examples"] = study.tables["lens_examples"].drop(
        columns="keys"
    )  # an older study
    (row,) = part_of(study, "lens-examples").rows
    assert row[4].text == "a<b 0.00, raw 0.01"
