"""The cluster map names every head, tells layers, roles and clusters apart, and is not drawn without them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from studies import RECORD, SMALL, THREE, made_up

from headscope.analysis.clusters import MOST_CLUSTERS, clusters_of
from headscope.heads import Head
from headscope.report.drawing.palette import MISSING
from headscope.report.rendered_figures import svg_of
from headscope.report.role_groups import FAMILIES
from headscope.report.sections import figures_of
from headscope.report.sections.clusters import COLOURS, PANEL, SHAPES, _apart
from headscope.study.study import Study


def with_clusters(stacks: dict[str, tuple[int, int]], *, recorded: bool = True) -> Study:
    """A made-up study whose heads lie at random."""
    study = made_up(stacks, ["entropy"], has_maps=False)
    rows, summaries = [], {}
    for stack, (layers, heads) in stacks.items():
        points = np.random.default_rng(0).normal(size=(layers * heads, 3))
        js = np.square(points[:, None] - points).sum(axis=-1) / 40
        result = clusters_of(
            js, [Head(stack, layer, head) for layer in range(layers) for head in range(heads)]
        )
        rows += result.rows()
        summaries[stack] = result.summary()
    study.tables["clusters"] = pd.DataFrame(rows)
    study.record = {**RECORD, **({"clusters": summaries} if recorded else {})}
    return study


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [
        "".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")
    ]


def pictures(study: Study) -> dict[str, str]:
    return {
        d.name: svg_of(d.draw(study)) for d in figures_of(study) if d.name.startswith("clusters-")
    }


def test_every_head_is_named_on_both_planes() -> None:
    (svg,) = pictures(with_clusters(SMALL)).values()
    labels = texts(svg)
    for layer in range(2):
        for head in range(4):
            assert labels.count(f"{layer}.{head}") == 2
    assert {"by layer", "by cluster", "layer 0", "1"} <= set(labels)
    assert any(re.fullmatch(r"cluster 0 \(\d\)", text) for text in labels)


ROLE = {
    "stack": "encoder",
    "low": 0.7,
    "high": 0.9,
    "baseline": np.nan,
    "threshold": 0.5,
    "is_sure": True,
    "count": 9,
}


def with_roles() -> Study:
    """Two heads have one role, one has two of which the second is the stronger, one is undetermined, four unnamed."""
    study = with_clusters(SMALL)
    named = [
        (0, 0, "previous token", 0.8),
        (0, 1, "positional -2", 0.8),
        (1, 0, "broad", 0.6),
        (1, 0, "separators", 0.9),
        (1, 1, "undetermined", np.nan),
    ]
    rows = [
        ROLE | {"layer": i, "head": h, "role": role, "value": value, "rule": ""}
        for i, h, role, value in named
    ]
    study.tables["roles"] = pd.DataFrame(rows)
    return study


def test_heads_are_coloured_by_layer_and_by_their_strongest_role() -> None:
    study = with_roles()
    result = pictures(study)
    assert list(result) == ["clusters-encoder", "clusters-encoder-found"]
    labels = texts(result["clusters-encoder"])
    assert {
        "by layer",
        "by role",
        "position (2)",
        "special tokens (1)",
        "no rule holds (5)",
    } <= set(labels)
    assert not any(text.startswith("broad") for text in labels)
    for layer in range(2):
        for head in range(4):
            assert labels.count(f"{layer}.{head}") == 2
            assert texts(result["clusters-encoder-found"]).count(f"{layer}.{head}") == 1
    assert "by cluster" in texts(result["clusters-encoder-found"])


def test_a_role_has_the_colour_it_has_in_the_map_of_roles() -> None:
    study = with_roles()
    drawing = next(d for d in figures_of(study) if d.name == "clusters-encoder")
    figure = drawing.draw(study)
    marks = {one.get_label(): to_hex(one.get_facecolor()[0]) for one in figure.axes[1].collections}
    expected = {
        "position (2)": FAMILIES["position"],
        "special tokens (1)": FAMILIES["special tokens"],
    }
    assert marks == expected | {"no rule holds (5)": MISSING}


def test_no_mark_covers_another_and_none_goes_far() -> None:
    points = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.001], [1.0, 1.0], [0.4, 0.0]])
    mark = 0.165
    moved = _apart(points, mark)
    least = mark / PANEL  # the extent is 1
    between = np.linalg.norm(moved[:, None] - moved, axis=-1) + np.eye(len(points))
    assert between.min() > 0.95 * least
    np.testing.assert_allclose(moved[3:], points[3:], atol=1e-3)  # what covers nothing stays
    assert np.linalg.norm(moved - points, axis=-1).max() < 2 * least


@pytest.mark.parametrize("kind", ["roles", "many clusters"])
def test_no_legend_reaches_beyond_its_panel(kind: str) -> None:
    study = with_roles()
    if kind == "roles":
        roles = [
            "previous token",
            "coreferential",
            "separators",
            "punctuation",
            "broad",
            "block",
            "confident",
            "rare words",
        ]
        places = [(layer, head) for layer in range(2) for head in range(4)]
        rows = [ROLE | {"layer": i, "head": h, "value": 0.8, "rule": ""} for i, h in places]
        study.tables["roles"] = pd.DataFrame(
            [row | {"role": role} for row, role in zip(rows, roles, strict=True)]
        )
    else:
        study.tables["clusters"]["cluster"] = range(8)
    for drawing in [d for d in figures_of(study) if d.name.startswith("clusters-")]:
        figure = drawing.draw(study)
        FigureCanvasAgg(figure)
        renderer = figure.canvas.get_renderer()
        for ax in figure.axes:
            legend, panel = (
                ax.get_legend().get_window_extent(renderer),
                ax.get_window_extent(renderer),
            )
            assert legend.x1 <= panel.x1 + 1, f"{drawing.name}: {legend.x1} > {panel.x1}"
            assert legend.y0 >= -1, drawing.name


def test_what_the_layers_say_is_written_where_it_is_known() -> None:
    (figure,) = pictures(with_clusters(SMALL)).values()
    assert "mean divergence within a layer is" in " ".join(texts(figure))
    (unknown,) = pictures(with_clusters(SMALL, recorded=False)).values()
    assert "mean divergence" not in " ".join(texts(unknown))


def test_every_stack_has_its_own_map_in_order() -> None:
    study = with_clusters({"cross": (2, 3), "encoder": (2, 4), "decoder": (2, 3)})
    assert list(pictures(study)) == ["clusters-encoder", "clusters-decoder", "clusters-cross"]


@pytest.mark.parametrize("stacks", [{"encoder": (2, 1)}, {"decoder": (30, 9)}, THREE])
def test_few_and_many_heads_are_drawn(stacks: dict[str, tuple[int, int]]) -> None:
    study = with_clusters(stacks)
    result = pictures(study)
    assert len(result) == len(stacks)
    assert result == pictures(study)
    if "decoder" in stacks and len(stacks) == 1:
        assert "3.4" not in texts(result["clusters-decoder"])  # 270 names would hide one another


def test_a_study_without_clusters_has_no_map() -> None:
    assert pictures(made_up(SMALL)) == {}
    assert pictures(with_clusters({"encoder": (1, 1)})) == {}
    study = with_clusters(SMALL)
    study.tables["clusters"] = study.tables["clusters"].drop(columns="x")  # another program's file
    assert pictures(study) == {}


def test_there_are_as_many_marks_as_clusters() -> None:
    assert len(COLOURS) * len(SHAPES) >= MOST_CLUSTERS
