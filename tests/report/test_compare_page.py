"""The page of a comparison: whole, self-contained, with every figure and table that there are numbers for."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from studies import THREE, made_up

from headscope import Comparison, compare
from headscope.errors import HeadscopeError
from headscope.report.drawing.compare_figures import draw_comparison
from headscope.report.page.comparison import (
    findings_of,
    render_comparison,
)
from headscope.report.write import write
from headscope.study.study import Study

if TYPE_CHECKING:
    from browsers import Watched

SIZES = {"encoder": (4, 4)}


def named(study: Study, name: str) -> Study:
    study.record = {**study.record, "model": {**study.record["model"], "name": name}}
    return study


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    studies = [named(made_up(SIZES), "one"), named(made_up({"encoder": (6, 5)}), "<b>&two")]
    for study in studies:
        heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
        study.tables["roles"] = heads.assign(role="broad")
    return compare(studies)


@pytest.fixture(scope="module")
def folder(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return comparison.write(tmp_path_factory.mktemp("comparisons") / "out")


def changed(comparison: Comparison) -> Comparison:
    """With made-up changes in place of those of two models."""
    layers = pd.DataFrame({"stack": "encoder", "layer": range(4), "count": 9, "floor_count": 4})
    numbers = {"js": [0.1, 0.2, 0.4, 0.3], "cosine": [0.9, 0.8, 0.5, 0.7]}
    for name, values in numbers.items():
        layers = layers.assign(
            **{name: values, f"{name}_low": values, f"{name}_high": values, f"floor_{name}": 0.45}
        )
    layers["change"] = layers["js"] / 0.45
    heads = pd.concat([layers.assign(head=head) for head in range(4)])
    made = Comparison(**vars(comparison))
    made.changes, made.layer_changes = heads, layers
    return made


def test_the_directory_holds_tables_figures_record_and_page(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    tables = {"layers.csv", "smoothness.csv", "roles.csv", "matches.csv", "matching.csv"}
    assert names == tables | {"run.json", "figures", "index.html"}
    record = json.loads((folder / "run.json").read_text("utf-8"))
    assert record["kind"] == "comparison"
    assert [study["name"] for study in record["studies"]] == ["one", "<b>&two"]
    figures = {path.stem for path in (folder / "figures").iterdir()}
    assert figures == {
        "compare-layers-encoder",
        "compare-confidence-encoder",
        "compare-confidence-content-encoder",
        "compare-smoothness-encoder",
        "compare-roles-encoder",
        "compare-matches-one-b-two-encoder",
    }


def test_the_tables_come_back_as_they_were(comparison: Comparison, folder: Path) -> None:
    for name, table in comparison.tables.items():
        read = pd.read_csv(folder / f"{name}.csv")
        assert list(read) == list(table)
        numbers = table.select_dtypes("number")
        assert np.allclose(read[numbers.columns], numbers, rtol=1e-9, equal_nan=True)


def test_the_page_is_well_formed_and_asks_for_nothing(folder: Path) -> None:
    page = (folder / "index.html").read_text("utf-8")
    tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            for name, value in attrs:
                if name in ("src", "href", "xlink:href"):
                    assert (value or "").startswith(("#", "data:")), (tag, value)

    Reader().feed(page)
    assert "script" not in tags
    assert "<b>&two" not in page
    assert "&lt;b&gt;&amp;two" in page
    assert re.search(r"needs the models and texts", page)
    assert len(re.findall("<figure", page)) == 6


def test_same_comparison_same_bytes(comparison: Comparison, folder: Path) -> None:
    assert render_comparison(comparison, list(draw_comparison(comparison))) == (
        folder / "index.html"
    ).read_text("utf-8")


def test_findings_are_read_off_the_tables(comparison: Comparison) -> None:
    matched, smooth = (str(one) for one in findings_of(comparison)[:2])
    row = comparison.smoothness.query(
        "study == 'one' and statistic == 'confidence' and form == 'heads'"
    ).iloc[0]
    assert smooth.startswith(
        "In one, the correlation of confidence between heads with the same number in neighbouring layers is "
    )
    assert f"{row['value']:.3f}".replace("-", "−") in smooth
    assert matched.startswith(
        "16 heads of one are matched to heads of <b>&two; their statistics differ by "
    )
    assert matched.endswith("; 14 heads of the larger model have no match.")


def test_changes_have_figures_a_table_and_a_finding(comparison: Comparison) -> None:
    with_changes = changed(comparison)
    plates = list(draw_comparison(with_changes))
    assert [plate.name for plate in plates][-2:] == [
        "compare-layer-changes-encoder",
        "compare-changes-encoder",
    ]
    assert str(findings_of(with_changes)[0]) == (
        "On the same 9 texts, layer 2 changed most and layer 0 least. Layer 2: divergence 0.400 nats, cosine 0.500; "
        "layer 3: divergence 0.300 nats, cosine 0.700; layer 0: divergence 0.100 nats, cosine 0.900."
    )
    assert 'id="changes"' in render_comparison(with_changes, plates)


def test_three_models_of_three_stacks() -> None:
    studies = [named(made_up(THREE, has_maps=False), name) for name in ("a", "b", "c")]
    comparison = compare(studies)
    assert len(comparison.matching) == 3 * 3 * 2
    actual = [str(one) for one in findings_of(comparison)]
    assert any(one.startswith("Encoder: In a, the correlation of confidence ") for one in actual)
    assert len(list(draw_comparison(comparison))) == 3 * 4 + 9


def test_one_statistic_is_enough() -> None:
    comparison = compare([named(made_up(SIZES, ["next"]), name) for name in ("a", "b")])
    assert [one.name for one in draw_comparison(comparison)] == [
        "compare-layers-encoder",
        "compare-smoothness-encoder",
        "compare-matches-a-b-encoder",
    ]


def test_a_comparison_is_not_overwritten_unless_requested(
    comparison: Comparison, folder: Path
) -> None:
    with pytest.raises(HeadscopeError, match="a study is already there"):
        write(comparison, folder)


@pytest.mark.browser
def test_the_page_opens_quietly_and_fits_a_telephone(folder: Path, watched: Watched) -> None:
    page = watched.open(folder / "index.html")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("figure svg").count() == 6
    watched.assert_quiet()
