"""The figures and tables of `importance` show the numbers of the study: values, stars, halves and correlations."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.stats import spearmanr
from studies import RECORD, record_for

from headscope.ablation.significance import delta_of_losses, holm, least_significant
from headscope.report.drawing.palette import SERIES
from headscope.report.head_cards import importance_lines
from headscope.report.map_colours import colourings_of
from headscope.report.page.render import render
from headscope.report.rendered_figures import svg_of
from headscope.report.sections import (
    agreement,
    all_but_one,
    figures_of,
    findings_of,
    masking,
    parts_of,
)
from headscope.report.sections.ablation import Ablation
from headscope.report.table_cells import decimals_for
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame

STACKS = ("encoder", "decoder", "cross")
SURE = {("encoder", 0, 1), ("cross", 1, 2)}  # by loss
CHEAP = ("gradient", "gradient-absolute", "entropy", "output-norm", "random")
INTACT = 0.8


def study_of(
    stacks: tuple[str, ...] = ("encoder",), *, shrink: float = 1.0, has_agreement: bool = True
) -> Study:
    """Two layers of three heads a stack, exact changes from -2 to 3 tenths, one metric unchanged."""
    random = np.random.default_rng(3)
    places = [(stack, layer, head) for stack in stacks for layer in range(2) for head in range(3)]
    rows, tests = [], []
    for number, position in enumerate(places):
        loss, metric = shrink * (number % 6 - 2) / 10, shrink * (2 - number % 6) / 50
        for name, value, count in (("ablation-loss", loss, 50), ("ablation-metric", metric, 40)):
            half = shrink * 0.01
            is_sure = position in SURE and name == "ablation-loss"
            p = 1e-5 if is_sure else 0.6
            rows.append(Row(*position, name, value, value - half, value + half, count))
            tests.append(
                dict(zip(("stack", "layer", "head"), position, strict=True))
                | {
                    "statistic": name,
                    "value": value,
                    "low": value - half,
                    "high": value + half,
                    "test": "paired t",
                }
                | {
                    "p": p,
                    "p_adjusted": p,
                    "is_significant": is_sure,
                    "count": count,
                    "settled_at": 32,
                }
            )
        rows += [
            Row(*position, name, float(random.random()), math.nan, math.nan, 1) for name in CHEAP
        ]
    tables = {"significance": pd.DataFrame(tests)}
    if has_agreement:
        tables["agreement"] = pd.DataFrame(
            [agreed(name, 0.9 - 0.3 * i) for i, name in enumerate(CHEAP)]
        )
    intact = {"accuracy": {"value": INTACT, "low": 0.7, "high": 0.9}}
    record = RECORD | {"importance": {"task": "mnli", "metric": "accuracy", "intact": intact}}
    return Study(to_frame(rows), {}, record, tables)


def agreed(name: str, correlation: float) -> dict[str, Any]:
    interval = {
        "correlation": correlation,
        "low": correlation - 0.1,
        "high": correlation + 0.05,
        "ceiling": 0.85,
    }
    counted = {"overlap": 4, "bottom": 10, "by_chance": 1.4, "rank_spread": 3.25, "count": 50}
    return {"importance": name} | interval | counted


def left_alone(site: str, head: int, p: float, *, metric: float = -0.05) -> dict[str, Any]:
    chosen = {
        "site": site,
        "left": f"{site}.{head}",
        "loss": 0.2,
        "loss_low": 0.1,
        "loss_high": 0.3,
    }
    reported = {"metric": metric, "metric_low": metric - 0.02, "metric_high": metric + 0.02, "p": p}
    same = {"same_data_left": f"{site}.0", "same_data_metric": 0.01, "count": 25}
    return chosen | reported | same | {"p_adjusted": p}


def text_of(figure: Figure) -> str:
    """Everything written in a figure."""
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def starred(figure: Figure) -> list[list[tuple[int, int]]]:
    """The (layer, head) cells of the stars of each panel."""
    marks = [
        one for ax in figure.axes for one in ax.collections if one.get_label() == "significant"
    ]
    return [[(int(y), int(x)) for x, y in mark.get_offsets()] for mark in marks]


# Heat maps with stars


def test_stars_stand_on_the_significant_heads_and_nowhere_else() -> None:
    study = study_of(STACKS)
    figure = Ablation("ablation-loss").draw(study)
    assert [ax.get_title(loc="left") for ax in figure.axes[:3]] == list(STACKS)
    assert starred(figure) == [[(0, 1)], [], [(1, 2)]]
    assert "★ significant (0.05, Holm over 18 heads): 2" in text_of(figure)
    assert starred(Ablation("ablation-metric").draw(study)) == [[], [], []]


def test_significance_is_drawn_alike_before_and_after_a_study_is_written_and_read(
    tmp_path: Path,
) -> None:
    study = study_of()
    flags = study.tables["significance"]["is_significant"].astype(object)
    flags[study.tables["significance"]["statistic"] == "ablation-metric"] = None
    study.tables["significance"]["is_significant"] = flags
    study.record = {**study.record, "model": record_for(study.heads, "ab" * 32)["model"]}
    write_tables(study, tmp_path)
    for item in (study, Study(tmp_path)):
        assert starred(Ablation("ablation-loss").draw(item)) == [[(0, 1)]]
        assert starred(Ablation("ablation-metric").draw(item)) == [[]]
        (part,) = [part for part in parts_of(item) if part.name == "significance"]
        assert [row[0].text for row in part.rows if "★" in [cell.text for cell in row]] == ["0.1"]
        (finding,) = [
            finding for finding in findings_of(item) if finding.statistic == "ablation-loss"
        ]
        assert [head.head for head in finding.heads] == ["0.1"]
        matters = next(
            colouring
            for colouring in colourings_of(item)
            if colouring["title"] == "effect of ablation"
        )
        assert [cell[1] for cell in matters["stacks"][0]] == ["", "☆", "", "", "", ""]
        assert " ★ significant" in importance_lines(item)["encoder", 0, 1][0]["after"]
    again = Study(tmp_path).tables["significance"]["is_significant"]
    assert again.tolist() == [None if item is None else bool(item) for item in flags]


def test_no_change_is_in_the_middle_of_the_colours() -> None:
    mesh = Ablation("ablation-loss").draw(study_of()).axes[0].collections[0]
    assert (mesh.norm.vmin, mesh.norm.vmax) == pytest.approx((-0.3, 0.3))
    np.testing.assert_allclose(
        np.asarray(mesh.get_array()).ravel(), [-0.2, -0.1, 0, 0.1, 0.2, 0.3], atol=1e-12
    )


@pytest.mark.parametrize(
    ("shrink", "unit"), [(1.0, "change of loss"), (0.01, "change of loss, in thousandths")]
)
def test_small_changes_are_printed_in_thousandths_and_say_so(shrink: float, unit: str) -> None:
    figure = Ablation("ablation-loss").draw(study_of(shrink=shrink))
    assert figure.axes[-1].get_ylabel() == unit
    printed = [float(text.get_text().replace("−", "-")) for text in figure.axes[0].texts]
    np.testing.assert_allclose(
        printed, np.array([-0.2, -0.1, 0, 0.1, 0.2, 0.3]) * (1 if shrink == 1 else 10)
    )


def test_a_study_without_tests_speaks_of_no_stars() -> None:
    study = study_of()
    del study.tables["significance"]
    assert "★" not in text_of(Ablation("ablation-loss").draw(study))


def test_what_has_a_figure_of_its_own_has_no_heat_map() -> None:
    names = [drawing.name for drawing in figures_of(study_of())]
    expected = ["ablation-loss", "ablation-metric", "masking", "agreement", "agreement-heads"]
    assert [name for name in names if not name.startswith(("heat-", "layer-"))] == expected
    assert [name for name in names if name.startswith("heat-")] == [
        "heat-entropy",
        "heat-output-norm",
        "heat-random",
    ]


def test_gradients_without_exact_removal_keep_their_heat_maps() -> None:
    study = study_of()
    study.heads = study.heads[study.heads["statistic"].str.startswith("gradient")]
    study.tables = {}
    assert [drawing.name for drawing in figures_of(study)] == [
        "heat-gradient",
        "heat-gradient-absolute",
    ]


# The model without one head


def test_the_histogram_counts_every_head_once_and_marks_the_intact_model() -> None:
    study = study_of(("encoder", "cross"))
    figure = masking.Masking().draw(study)
    assert (
        "with each of 12 heads ablated alone: worse for 6, the same for 2, better for 4"
        in text_of(figure)
    )
    assert f"unpruned {INTACT}" in text_of(figure)
    for ax in figure.axes:
        bars = [bar for container in ax.containers for bar in container if bar.get_height() > 0]
        inside = [
            sum(
                bar.get_height()
                for bar in bars
                if bar.get_x() <= INTACT + change < bar.get_x() + bar.get_width()
            )
            for change in (0.04, 0.02, 0.0, -0.02, -0.04, -0.06)
        ]
        assert inside == [1] * 6
        assert sum(bar.get_height() for bar in bars) == 6
        (line,) = ax.lines
        np.testing.assert_allclose(line.get_xdata(), INTACT)


def test_full_colour_means_a_significant_change_of_the_metric() -> None:
    study = study_of()
    table = study.tables["significance"]
    table.loc[
        (table["statistic"] == "ablation-metric") & (table["head"] == 2), "is_significant"
    ] = True
    sure, unsure = masking.Masking().draw(study).axes[0].containers
    assert (sum(bar.get_height() for bar in sure), sum(bar.get_height() for bar in unsure)) == (
        2,
        4,
    )


@pytest.mark.parametrize("changes", [[0.0, 0.0], [-0.5, 0.1], [0.25, 0.75], [-0.0226, 0.0075]])
def test_no_change_is_in_the_middle_of_a_bin_and_all_are_inside(changes: list[float]) -> None:
    edges = masking.bins_of(np.array(changes))
    nearest = np.sort(np.abs(edges))[:2]
    np.testing.assert_allclose(nearest[0], nearest[1])
    assert edges[1] < min(changes)
    assert max(changes) < edges[-2]


@pytest.mark.parametrize(
    "summary", [{}, {"metric": "accuracy"}, {"metric": "accuracy", "intact": {"accuracy": None}}]
)
def test_without_the_intact_models_metric_there_is_no_histogram(summary: dict[str, Any]) -> None:
    study = study_of()
    study.record = RECORD | {"importance": summary}
    assert not masking.Masking().applies(study)


# All but one


def with_one_left() -> Study:
    study = study_of(STACKS)
    sites = [
        left_alone("cross.1", 2, 0.01),
        left_alone("encoder.10", 1, 0.5),
        left_alone("encoder.2", 0, 0.04),
    ]
    study.tables["all_but_one"] = pd.DataFrame(sites)
    return study


def test_each_layer_has_the_head_that_is_left_as_it_does_on_the_other_half() -> None:
    figure = all_but_one.AllButOne().draw(with_one_left())
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "encoder, layer 2",
        "encoder, layer 10",
        "cross, layer 1",
    ]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(float(dot.get_xdata()[0]), int(dot.get_ydata()[0])) for dot in dots] == [
        (-0.05, 0),
        (-0.05, 1),
        (-0.05, 2),
    ]
    filled = [dot.get_markerfacecolor() != "none" for dot in dots]
    assert filled == [True, False, True]
    assert [float(line.get_xdata()[0]) for line in ax.lines if line.get_marker() == "x"] == [
        0.01
    ] * 3
    assert [text.get_text() for text in ax.texts] == ["2.0", "10.1", "1.2", "all heads"]


def test_the_table_of_all_but_one_keeps_the_halves_apart() -> None:
    part = next(part for part in parts_of(with_one_left()) if part.name == "all-but-one")
    assert [row[0].text for row in part.rows] == ["encoder.2", "encoder.10", "cross.1"]
    first = dict(zip(part.columns, (cell.text for cell in part.rows[0]), strict=True))
    assert first["left"] == "encoder.2.0"
    assert first["change of metric"] == "−0.0500 [−0.0700, −0.0300]"
    assert (first["left, same data"], first["metric, same data"]) == ("encoder.2.0", "0.0100")


# Cheap importances


def test_every_dot_is_a_head_exact_across_and_cheap_up() -> None:
    study = study_of(("encoder", "cross"))
    figure = agreement.Scatter().draw(study)
    for ax, name in zip(figure.axes, CHEAP, strict=False):
        assert ax.get_title(loc="left") == name
        assert ax.yaxis_inverted() == (name == "entropy")
        for mark, stack in zip(ax.collections, ("encoder", "cross"), strict=True):
            values = study.heads[study.heads["stack"] == stack].set_index("statistic")["value"]
            np.testing.assert_allclose(
                mark.get_offsets()[:, 0], values["ablation-loss"], atol=1e-12
            )
            np.testing.assert_allclose(mark.get_offsets()[:, 1], values[name])
    assert [ax.texts[0].get_text() for ax in figure.axes[:5]] == [
        "ρ 0.90",
        "ρ 0.60",
        "ρ 0.30",
        "ρ 0.00",
        "ρ −0.30",
    ]


def test_without_agreement_only_what_importance_made_is_compared() -> None:
    study = study_of(has_agreement=False)
    assert agreement.cheap_importances(study) == [
        "gradient",
        "gradient-absolute",
        "output-norm",
        "random",
    ]
    values = study.heads.set_index("statistic")["value"]
    expected = spearmanr(values["gradient"], values["ablation-loss"]).statistic
    assert agreement.correlation_of(study, "gradient") == pytest.approx(expected)
    assert not agreement.Correlations().applies(study)
    assert (
        "agreement" in next(part for part in parts_of(study) if part.name == "significance").figures
    )


def test_correlations_stand_in_order_with_ceiling_and_overlap() -> None:
    study = study_of()
    study.tables["agreement"] = study.tables["agreement"][::-1].reset_index(drop=True)
    figure = agreement.Correlations().draw(study)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == list(CHEAP)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    result = {int(dot.get_ydata()[0]): float(dot.get_xdata()[0]) for dot in dots}
    assert result == pytest.approx({0: 0.9, 1: 0.6, 2: 0.3, 3: 0.0, 4: -0.3})
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [0.85]
    assert "ceiling 0.85" in text_of(figure)
    assert "of the 10 least (chance: 1.4)" in text_of(figure)
    assert [to_rgba(dot.get_color()) == to_rgba(SERIES[0]) for dot in dots] == [True] * 4 + [
        False
    ]  # random is grey


# The page


def test_the_page_shows_all_of_it_under_which_heads_matter() -> None:
    page = render(with_one_left())
    headings = re.findall(r'id="part-[^>]*>\s*<h2>([^<]*)</h2>', page)
    assert headings == [
        "Which heads matter",
        "Ablating all heads of a layer except one",
        "Importance scores against exact ablation",
    ]
    begin, end = page.index('id="part-significance"'), page.index('id="table"')
    for name in (
        "ablation-loss",
        "ablation-metric",
        "masking",
        "all-but-one",
        "agreement",
        "agreement-heads",
    ):
        assert page.count(f'id="figure-{name}"') == 1
        assert begin < page.index(f'id="figure-{name}"') < end, name


def test_the_table_of_tests_has_the_largest_change_first_and_stars_where_they_belong() -> None:
    part = next(part for part in parts_of(study_of()) if part.name == "significance")
    shown = [(row[0].text, row[1].text, row[4].text, row[8].text) for row in part.rows]
    assert shown == [
        ("1.2", "0.300 [0.290, 0.310]", "", ""),
        ("0.0", "−0.200 [−0.210, −0.190]", "", ""),
        ("1.1", "0.200 [0.190, 0.210]", "", ""),
        ("0.1", "−0.100 [−0.110, −0.090]", "★", ""),
        ("1.0", "0.100 [0.090, 0.110]", "", ""),
        ("0.2", "0.000 [−0.010, 0.010]", "", ""),
    ]
    assert (part.rows[3][2].text, part.rows[0][2].text) == ("1e−05", "0.600")
    assert part.rows[0][5].text == "−0.0600 [−0.0700, −0.0500]"
    assert "Task: mnli; metric: accuracy." in part.note


def test_both_p_values_are_shown_by_name_and_intervals_say_that_they_have_no_correction() -> None:
    """The interval excludes 0 while the corrected p is 1: not an error, but it has to be said."""
    study = study_of()
    table = study.tables["significance"]
    table[["p", "p_adjusted", "is_significant"]] = 0.0139, 1.0, False
    (part,) = (part for part in parts_of(study) if part.name == "significance")
    first = dict(zip(part.columns, (cell.text for cell in part.rows[0]), strict=True))
    assert first["change of loss"] == "0.300 [0.290, 0.310]"
    assert (first["p"], first["p (Holm)"]) == ("0.014", "1.000")
    assert (first["p, metric"], first["p (Holm), metric"]) == ("0.014", "1.000")
    assert "without correction for multiple testing" in part.note
    after = importance_lines(study)["encoder", 1, 2][0]["after"]
    assert after == " (uncorrected interval); p 0.014, p (Holm) 1.000: not significant"
    (finding,) = (one for one in findings_of(study) if one.statistic == "ablation-loss")
    assert "the interval is not corrected for testing 6 heads, but significance is (Holm)" in str(
        finding
    )
    (part,) = (part for part in parts_of(with_one_left()) if part.name == "all-but-one")
    assert {"p", "p (Holm)"} <= set(part.columns)
    assert "without correction for multiple testing" in part.note


def test_a_study_without_uncorrected_p_values_is_still_shown() -> None:
    study = study_of()
    del study.tables["significance"]["p"]
    (part,) = (part for part in parts_of(study) if part.name == "significance")
    assert {row[part.columns.index("p")].text for row in part.rows} == {"–"}
    assert {row[part.columns.index("p (Holm)")].text for row in part.rows} == {"0.600", "1e−05"}
    assert (
        importance_lines(study)["encoder", 0, 1][0]["after"]
        == " (uncorrected interval); p (Holm) 1e−05: ★ significant"
    )


@pytest.mark.parametrize(
    ("most", "decimals"), [(0.0, 3), (12.0, 3), (0.5, 3), (0.0325, 4), (0.00325, 5), (math.nan, 3)]
)
def test_small_numbers_get_the_decimals_they_need(most: float, decimals: int) -> None:
    assert decimals_for([most, -most / 3, math.nan]) == decimals


def test_findings_name_the_heads_that_matter_and_the_best_cheap_importance() -> None:
    actual = [str(finding) for finding in findings_of(study_of(STACKS))]
    assert (
        "2 of 18 heads change the mnli loss significantly when each is ablated alone. cross.1.2: 0.300 [0.290, 0.310]; "
        "encoder.0.1: −0.100 [−0.110, −0.090] (change of the loss; above 0 the model is worse without the head); "
        "intervals are not corrected for testing 18 heads, but significance is (Holm)."
    ) in actual
    assert (
        "“Change of loss predicted by the gradient” ranks heads most like ablation: the rank correlation is 0.900. "
        "0.900 [0.800, 0.950] (Spearman); noise ceiling: 0.850; score and ablation were measured on the same 50 "
        "examples and share their noise, so that the correlation is above the ceiling; use more examples."
    ) in actual


@pytest.mark.parametrize(("ceiling", "is_clear"), [(0.95, True), (0.85, False)])
def test_a_correlation_above_the_ceiling_is_not_among_the_first(
    ceiling: float, is_clear: bool
) -> None:
    study = study_of()
    study.tables["agreement"]["ceiling"] = ceiling
    (cheap,) = (one for one in findings_of(study) if one.topic == "scores")
    assert cheap.is_clear == is_clear
    assert ("above the ceiling" in cheap.after) != is_clear


@pytest.mark.parametrize("ceiling", [math.nan, 0.0])
def test_where_removal_is_noise_no_ceiling_is_shown_and_no_importance_is_among_the_first(
    ceiling: float,
) -> None:
    study = study_of()
    study.tables["agreement"]["ceiling"] = ceiling
    row = {"stack": "encoder", "statistic": "entropy", "lens": "norm", "heads": 6} | dict(
        agreed("", 0.9)
    )
    study.tables["lenses"] = pd.DataFrame([row | {"ceiling": ceiling}])
    (cheap,) = (one for one in findings_of(study) if one.topic == "scores")
    (lens,) = (one for one in findings_of(study) if one.kind == "lenses")
    assert (
        "the changes by ablation are only noise and do not show which heads matter" in cheap.after
    )
    assert lens.after.endswith("the changes by ablation are only noise; use more examples")
    assert not cheap.is_clear
    assert not lens.is_clear
    (part,) = (one for one in parts_of(study) if one.name == "agreement")
    assert {row[part.columns.index("noise ceiling")].text for row in part.rows} == {"–"}
    assert part.lead.startswith(
        "There is no figure of these scores, because there are too few data: "
        "with 50 examples the changes by ablation are only noise"
    )


@pytest.mark.parametrize(
    ("ceiling", "is_drawn"), [(0.79, False), (0.8, True), (0.95, True), (math.nan, False)]
)
def test_no_ranking_is_drawn_below_a_ceiling_of_08_but_a_sentence_with_how_many_examples_would_do(
    ceiling: float, is_drawn: bool
) -> None:
    study = study_of()
    study.tables["agreement"]["ceiling"] = ceiling
    row = {"stack": "encoder", "statistic": "entropy", "lens": "norm", "heads": 6} | dict(
        agreed("", 0.9)
    )
    study.tables["lenses"] = pd.DataFrame([row | {"ceiling": ceiling}])
    study.tables["ceilings"] = pd.DataFrame(
        [{"stack": "encoder", "ceiling": ceiling, "heads": 6, "count": 50}]
    )
    ranked = {"agreement", "agreement-heads", "agree-lenses"}
    assert {one.name for one in figures_of(study)} & ranked == (ranked if is_drawn else set())
    (part,) = (one for one in parts_of(study) if one.name == "agreement")
    assert part.lead.startswith(
        "There is no figure of these scores, because there are too few data"
    ) == (not is_drawn)
    if ceiling == 0.79:
        message = (
            "even the true importance scores would correlate with ablation at only 0.79 (noise ceiling). "
            "It must be at least 0.8 to rank heads: "
        )
        assert part.lead.endswith(f"{message}about 54 examples are needed.")
        (cheap,) = (one for one in findings_of(study) if one.topic == "scores")
        assert cheap.after.endswith(f"{message}about 54 examples are needed")
        assert not cheap.is_clear


def test_where_nothing_is_significant_that_is_the_finding() -> None:
    study = study_of()
    study.tables["significance"]["is_significant"] = False
    expected = "No head changes the mnli loss significantly when it is ablated alone. 1.2: 0.300"
    (result,) = (
        str(finding) for finding in findings_of(study) if finding.statistic == "ablation-loss"
    )
    assert result.startswith(f"{expected} [0.290, 0.310] (change of the loss; ")
    assert "; with 50 examples, a significant change of the median head is larger than " in result
    least = least_significant([-0.01] * 6, [0.01] * 6, 50)
    assert result.endswith(
        f"is larger than {least:.4f}; of the head named above, larger than {least:.4f}."
    )


def test_the_smallest_significant_change_is_shown_and_would_be_significant() -> None:
    random = np.random.default_rng(0)
    changes = random.normal(size=(16, 72))  # example, head
    changes = (changes - changes.mean(axis=0)) / changes.std(axis=0, ddof=1)  # of one spread
    actual = [delta_of_losses(np.zeros(16), column) for column in changes.T]
    least = least_significant([one.low for one in actual], [one.high for one in actual], 16)
    for size, is_significant in ((0.99 * least, False), (1.01 * least, True)):
        p = [delta_of_losses(np.zeros(16), column).p for column in changes.T[1:]]
        p.append(delta_of_losses(np.zeros(16), changes[:, 0] + size).p)
        assert (holm(np.array(p))[-1] < 0.05) == is_significant
    assert math.isnan(least_significant([math.nan], [math.nan], 16))


@pytest.mark.parametrize(
    ("count", "loss", "expected"), [(16, 10.0, True), (50, 0.1, True), (50, 10.0, False)]
)
def test_too_few_examples_are_reported_as_such(count: int, loss: float, expected: bool) -> None:
    study = study_of()
    study.tables["significance"] = study.tables["significance"].assign(count=count)
    study.record["importance"] |= {"intact": {"loss": {"value": loss}}}
    (result,) = (finding for finding in findings_of(study) if finding.statistic == "ablation-loss")
    assert (
        f"; with {count} examples, too few to detect small changes: a significant change"
        in result.after
    ) == expected
    assert (
        expected or "a significant change" not in result.after
    )  # some head is significant, and there were enough
    assert (
        not expected
        or f"({least_significant([-0.01] * 6, [0.01] * 6, count) / loss * 100:.0f} % of the loss)"
        in result.after
    )


@pytest.mark.parametrize(
    "gone", ["significance", "agreement", "record", "empty tables", "missing values"]
)
def test_half_a_study_still_draws(gone: str) -> None:
    study = with_one_left()
    if gone == "record":
        study.record = {}
    elif gone == "empty tables":
        study.tables = {name: table[:0] for name, table in study.tables.items()}
    elif gone == "missing values":
        study.heads.loc[::7, ["value", "low", "high"]] = math.nan
        for name, column in (
            ("significance", "value"),
            ("all_but_one", "metric"),
            ("agreement", "correlation"),
        ):
            study.tables[name].loc[
                0, [column, "low", "high"] if name != "all_but_one" else [column]
            ] = math.nan
    else:
        del study.tables[gone]
    drawings = [
        drawing for drawing in figures_of(study) if not drawing.name.startswith(("heat-", "layer-"))
    ]
    assert "ablation-loss" in [drawing.name for drawing in drawings]
    written = {
        drawing.name: re.findall(r">([^<>]+)</text>", svg_of(drawing.draw(study)))
        for drawing in drawings
    }
    written["page"] = [cell.text for part in parts_of(study) for row in part.rows for cell in row]
    written["findings"] = [str(finding) for finding in findings_of(study)]
    assert not [name for name, texts in written.items() if re.search(r"\bnan\b", " ".join(texts))]
