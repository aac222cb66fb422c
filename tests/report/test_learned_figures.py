"""Pages of gates, masks and films: figures legible on a pale page and on a dark one, and words that are true."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from every_table import CUT, MASK, every_table
from studies import made_up

from headscope.report.page.render import render
from headscope.report.rendered_figures import render_figure, render_figures
from headscope.report.scale import scale_of
from headscope.report.sections import figures_of, findings_of
from headscope.report.sections.confidence import ConfidenceFigure
from headscope.report.sections.front import part as front
from headscope.report.sections.gates import GatesOverTime
from headscope.report.sections.heat_map import HeatMap
from headscope.report.sections.learned_masks import LearnedMaskMap
from headscope.study.study import Study
from headscope.tables import to_frame

DARK = "#1a2128"  # the page's card
NAMES = ("mask-table", "film-encoder", "fronts", "front", "learned-mask", "gates-")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", NAMES)
def test_lines_and_dots_stand_out_on_a_dark_page(name: str) -> None:
    plates = render_figures(every_table(), (name,))
    assert plates
    for plate in plates:
        assert not plate.is_raster  # a picture would stay a white box
        for colour in set(re.findall(r"(?:stroke|fill): (#[0-9a-f]{6})", plate.inline())):
            assert (luminance(colour) + 0.05) / (luminance(DARK) + 0.05) > 2.5, colour


def gated(values: list[float]) -> Study:
    study = made_up(statistics=["cls"])
    position = study.heads[["stack", "layer", "head"]].drop_duplicates()
    rows = position.assign(statistic="gate-keep-2", value=0.0, low=np.nan, high=np.nan, count=10)
    rows.iloc[: len(values), rows.columns.get_loc("value")] = values
    return Study(rows, {}, study.record, {})


def test_gates_are_open_or_closed_and_nothing_between() -> None:
    figure = HeatMap("gate-keep-2", "heat").draw(gated([1.0, 1.0]))
    grid, bar = figure.axes
    assert [tick.get_text() for tick in bar.get_yticklabels()] == ["closed", "open"]
    assert not grid.texts
    assert bar.images[0].get_array().shape == (2, 1)


def test_the_scale_of_a_share_ends_at_one() -> None:
    scale = scale_of("mask-open-sparsity-0.9-seed-0", np.full(4, 0.06))
    assert (scale.low, scale.high) == (0.0, 1.0)


def test_gates_over_time_are_one_picture_true_to_the_steps() -> None:
    """Moments at 1, 10 and 20: up to 5.5 the first, from 15 on the last."""
    key = {"stack": "encoder", "layer": 0, "head": 0, "aim": "keep-1"}
    rows = [key | {"step": step, "gate": gate} for step, gate in ((1, 1.0), (10, 0.5), (20, 0.0))]
    study = Study(every_table().heads, {}, {}, {"gates": pd.DataFrame(rows)})
    [axes] = GatesOverTime("keep-1").draw(study).axes
    assert not axes.collections
    picture = np.asarray(axes.images[0].get_array())[0]
    steps = (np.arange(len(picture)) + 0.5) / len(picture) * 20
    expected = np.where(steps < 5.5, 1.0, np.where(steps < 15, 0.5, 0.0))
    assert picture == pytest.approx(expected)


def ringed(is_chosen: bool) -> Study:
    sizes = [
        CUT | {"removed": size, "left": 8 - size, "is_chosen": is_chosen and size == 3}
        for size in (0, 5, 3)
    ]
    return Study(every_table().heads, {}, {}, {"front": pd.DataFrame(sizes)})


def test_a_ring_is_spoken_of_where_there_is_one() -> None:
    for is_chosen in (True, False):
        [actual] = [one for one in figures_of(ringed(is_chosen)) if one.name == "front"]
        assert ("A ring" in actual.caption) == is_chosen


def test_the_front_is_ordered_by_what_is_removed() -> None:
    part = front(ringed(is_chosen=False))
    assert part is not None
    assert [row[0].key for row in part.rows] == [0, 3, 5]


def soft(**record: Any) -> Study:
    grid = np.full((10, 10), 0.6)
    grid[0, 1], grid[9, 9] = 0.2, 0.999
    table = pd.DataFrame(
        [{"aim": "soft", "positions": "other", "value": 0.6, "low": 0.5, "high": 0.7, "seeds": 2}]
    )
    summary = {"learned_masks": {"options": {"is_soft": True}, "reached": 8, **record}}
    return Study(every_table().heads, {"mask/soft": grid}, summary, {"positions": table})


def test_a_soft_map_is_centred_at_a_half_and_grey_where_few_texts_reach() -> None:
    study = soft()
    [drawing] = LearnedMaskMap.for_study(study)
    assert "Grey: fewer than 5 % of the texts are that long" in drawing.caption
    left, bar, right = drawing.draw(study).axes
    [image] = left.images
    held = np.ma.getmaskarray(image.get_array())
    position = np.arange(10)
    assert np.array_equal(held, np.maximum(position[:, None], position) >= 8)
    low, high = image.get_clim()
    assert (low + high) / 2 == pytest.approx(0.5)
    assert right.get_xlabel() == "sigmoid(α)"
    assert bar.images[0].get_clim() == (low, high)


def test_a_chosen_map_is_open_or_closed_and_its_bars_are_shares() -> None:
    study = soft(options={"is_soft": False})
    study.maps["mask/soft"] = np.eye(10)
    [drawing] = LearnedMaskMap.for_study(study)
    assert "sigmoid" not in drawing.caption
    left, bar, right = drawing.draw(study).axes
    assert not np.ma.getmaskarray(left.images[0].get_array()).any()
    assert [tick.get_text() for tick in bar.get_yticklabels()] == ["closed", "open"]
    assert right.get_xlabel() == "open share"


def test_panels_of_a_film_and_of_few_heads_have_titles_of_their_own() -> None:
    study = every_table()
    rows = study.tables["film"].assign(statistic="argmax-offset")
    study.tables["film"] = pd.concat([study.tables["film"], rows])
    [film] = [one for one in figures_of(study) if one.name == "film-encoder"]
    titles = [axes.get_title(loc="left") for axes in film.draw(study).axes]
    assert "argmax-offset, tokens" in titles
    few = made_up({"encoder": (2, 2)}, ["confidence", "confidence-content"])
    [confidence] = [one for one in figures_of(few) if isinstance(one, ConfidenceFigure)]
    headings = [
        axes.get_title(loc="left") for axes in render_figure(confidence, few).figure.axes[:2]
    ]
    assert headings == ["all tokens", "content only"]


def without_heads() -> Study:
    mask = MASK | {"metric_change": 0.022, "change_low": -0.01, "change_high": 0.05}
    summary = {"task": "sst2", "metric": "accuracy", "reported_on": {"split": "dev"}}
    record = {"model": {"name": "minilm", "class": "BertModel"}, "mask_table": summary}
    return Study(to_frame([]), {}, record, {"mask_table": pd.DataFrame([mask])})


def test_a_page_without_heads_speaks_of_none() -> None:
    page = render(without_heads())
    body = re.sub(
        r"<script.*?</script>|<style>.*?</style>|<section[^>]* hidden>.*?</section>",
        "",
        page,
        flags=re.S,
    )
    for words in ("picked out of", "Heads are written", "attention heads", "single heads"):
        assert words not in body
    assert "<h1><bdi>minilm</bdi>: what sparse masks cost for sst2</h1>" in body
    assert "Brackets are 95 % intervals." in body


def test_the_cheapest_mask_is_reported_with_its_metric_and_signs() -> None:
    [lines] = [str(one) for one in findings_of(without_heads())]
    assert (
        "Accuracy is 0.8000; change of +0.0220 [−0.0100, +0.0500]: too few examples to tell whether"
        in lines
    )
