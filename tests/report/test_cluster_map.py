"""The cluster map names every head, tells layers and clusters apart, and is left out where there is nothing to draw."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from studies import RECORD, SMALL, THREE, made_up

from headscope.heads import Head
from headscope.report.figures import figures_of
from headscope.report.figures.clusters import COLOURS, SHAPES
from headscope.report.plates import svg_of
from headscope.study.clusters import MOST_CLUSTERS, clusters_of
from headscope.study.study import Study


def with_clusters(stacks: dict[str, tuple[int, int]], *, recorded: bool = True) -> Study:
    """A made-up study whose heads lie at random."""
    study = made_up(stacks, ["entropy"], has_maps=False)
    rows, summaries = [], {}
    for stack, (layers, heads) in stacks.items():
        points = np.random.default_rng(0).normal(size=(layers * heads, 3))
        js = np.square(points[:, None] - points).sum(axis=-1) / 40
        found = clusters_of(js, [Head(stack, layer, head) for layer in range(layers) for head in range(heads)])
        rows += found.rows()
        summaries[stack] = found.summary()
    study.tables["clusters"] = pd.DataFrame(rows)
    study.record = {**RECORD, **({"clusters": summaries} if recorded else {})}
    return study


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def pictures(study: Study) -> dict[str, str]:
    return {d.name: svg_of(d.draw(study)) for d in figures_of(study) if d.name.startswith("clusters-")}


def test_every_head_is_named_on_both_planes() -> None:
    (svg,) = pictures(with_clusters(SMALL)).values()
    said = texts(svg)
    for layer in range(2):
        for head in range(4):
            assert said.count(f"{layer}.{head}") == 2
    assert {"by layer", "by cluster", "layer 0", "1"} <= set(said)
    assert any(re.fullmatch(r"cluster 0 \(\d\)", text) for text in said)


def test_what_the_layers_say_is_written_where_it_is_known() -> None:
    (known,) = pictures(with_clusters(SMALL)).values()
    assert "mean divergence within a layer is" in " ".join(texts(known))
    (unknown,) = pictures(with_clusters(SMALL, recorded=False)).values()
    assert "mean divergence" not in " ".join(texts(unknown))


def test_every_stack_has_its_own_map_in_order() -> None:
    study = with_clusters({"cross": (2, 3), "encoder": (2, 4), "decoder": (2, 3)})
    assert list(pictures(study)) == ["clusters-encoder", "clusters-decoder", "clusters-cross"]


@pytest.mark.parametrize("stacks", [{"encoder": (2, 1)}, {"decoder": (30, 9)}, THREE])
def test_few_and_many_heads_are_drawn(stacks: dict[str, tuple[int, int]]) -> None:
    study = with_clusters(stacks)
    found = pictures(study)
    assert len(found) == len(stacks)
    assert found == pictures(study)
    if "decoder" in stacks and len(stacks) == 1:
        assert "3.4" not in texts(found["clusters-decoder"])  # 270 names would hide one another


def test_a_study_without_clusters_has_no_map() -> None:
    assert pictures(made_up(SMALL)) == {}
    assert pictures(with_clusters({"encoder": (1, 1)})) == {}
    study = with_clusters(SMALL)
    study.tables["clusters"] = study.tables["clusters"].drop(columns="x")  # another program's file
    assert pictures(study) == {}


def test_there_are_as_many_marks_as_clusters() -> None:
    assert len(COLOURS) * len(SHAPES) >= MOST_CLUSTERS
