"""Every figure draws every kind of study, says what it shows, and gives the same bytes twice."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from every_table import every_table
from matplotlib.colors import to_hex
from PIL import Image
from studies import SMALL, STATISTICS, THREE, made_up

from headscope.report.drawing import palette
from headscope.report.drawing.palette import DIVERGING_STOPS, SEQUENTIAL_STOPS
from headscope.report.drawing.style import colours_of, norm_of
from headscope.report.map_colours import MATTERS
from headscope.report.page.payload import describe_statistic
from headscope.report.rendered_figures import inline_svg, progress_callbacks, render_figures, svg_of
from headscope.report.scale import Scale, scale_of
from headscope.report.sections import figures_of, sections
from headscope.report.study_access import grid_of, stacks_of
from headscope.report.text import plain
from headscope.study.study import Study
from headscope.tables import Row, to_frame

STUDIES = {
    "small": made_up(),
    "three stacks": made_up(THREE),
    "one head": made_up({"encoder": (1, 1)}),
    "tall": made_up({"decoder": (30, 9)}, ["previous", "entropy", "special"]),
    "many heads": made_up({"decoder": (4, 32)}, ["entropy", "argmax-offset"], positions=40),
    "unknown statistics": made_up(SMALL, ["novelty", "previous"]),
    "no maps": made_up(has_maps=False),
    "no record": made_up(record={}),
}


@pytest.mark.parametrize("kind", STUDIES)
def test_every_figure_that_applies_draws_and_says_how_to_read_it(kind: str) -> None:
    study = STUDIES[kind]
    drawings = figures_of(study)
    assert drawings
    for drawing in drawings:
        assert re.fullmatch(r"[a-z0-9-]+", drawing.name), drawing.name
        assert drawing.title
        assert drawing.caption.endswith((".", "value."))
        svg = svg_of(drawing.draw(study))
        ElementTree.fromstring(svg)
    names = [drawing.name for drawing in drawings]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_every_figure_of_every_table_is_drawn_as_png_too() -> None:
    for plate in render_figures(every_table()):
        with Image.open(io.BytesIO(plate.png)) as image:
            assert image.getextrema() != ((255, 255),) * 3, f"{plate.name} is blank"


def test_drawing_reports_its_progress() -> None:
    study, calls = STUDIES["many heads"], list[tuple[int, int]]()
    with progress_callbacks(lambda done, total: calls.append((done, total)), lambda step: None):
        plates = render_figures(study)
    assert calls == [(number, len(plates)) for number in range(1, len(plates) + 1)]
    assert len(plates) > 3
    render_figures(study)
    assert len(calls) == len(plates)


def test_every_figure_file_is_found_by_being_there() -> None:
    folder = Path(sys.modules["headscope.report.sections"].__file__ or "").parent
    assert set(sections()) == {
        file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")
    }


def test_there_is_a_heat_map_for_every_statistic_known_or_not() -> None:
    names = [drawing.name for drawing in figures_of(made_up(SMALL, [*STATISTICS, "novelty"]))]
    assert [name for name in names if name.startswith("heat-")] == [
        f"heat-{s}" for s in [*STATISTICS, "novelty"]
    ]


def test_statistics_that_share_a_file_name_get_two_files() -> None:
    names = [
        drawing.name
        for drawing in figures_of(made_up(SMALL, ["a b", "a/b", "../a b"], has_maps=False))
    ]
    assert len(set(names)) == 3
    assert all("/" not in name and "." not in name for name in names)


def test_figures_without_their_statistics_or_maps_are_left_out() -> None:
    names = {drawing.name for drawing in figures_of(made_up(SMALL, ["previous"], has_maps=False))}
    assert names == {"heat-previous"}
    assert figures_of(Study(to_frame([]))) == []


def test_a_statistic_missing_from_a_stack_leaves_the_others_drawn() -> None:
    study = made_up(THREE, ["cls", "sep"], has_maps=False)
    study.heads = study.heads[
        ~((study.heads["stack"] == "cross") & (study.heads["statistic"] == "sep"))
    ]
    pictures = {drawing.name: svg_of(drawing.draw(study)) for drawing in figures_of(study)}
    assert ">cross</text>" in pictures["heat-cls"]
    assert ">encoder</text>" in pictures["heat-sep"]
    assert ">cross</text>" not in pictures["heat-sep"]


def test_heads_without_a_value_stay_blank() -> None:
    rows = [
        Row("encoder", 0, 0, "previous", 0.25, 0.2, 0.3, 9),
        Row("encoder", 1, 2, "previous", 0.75, 0.7, 0.8, 9),
    ]
    grid = grid_of(Study(to_frame(rows)), "previous", "encoder")
    np.testing.assert_array_equal(grid, [[0.25, np.nan, np.nan], [np.nan, np.nan, 0.75]])


def test_values_are_printed_in_the_cells_of_up_to_sixteen_heads() -> None:
    rows = [Row("encoder", 0, head, "previous", 0.37, 0.3, 0.4, 9) for head in range(17)]
    for heads, count in ((16, 16), (17, 0)):
        study = Study(to_frame(rows[:heads]))
        (drawing,) = figures_of(study)
        assert svg_of(drawing.draw(study)).count(">.37</text>") == count


def test_the_glossary_is_printed_with_the_heat_map() -> None:
    study = made_up(SMALL, ["self"], has_maps=False)
    (drawing,) = figures_of(study)
    assert drawing.caption.startswith(
        "Share of attention to the query token itself, averaged over queries. "
    )
    assert "Share of attention to the query token itself" in svg_of(drawing.draw(study))


def test_the_same_study_gives_the_same_files() -> None:
    first, second = (
        render_figures(made_up(THREE, ["previous", "cls", "confidence"])) for _ in range(2)
    )
    assert [(p.name, p.svg, p.png) for p in first] == [(p.name, p.svg, p.png) for p in second]


def test_drawing_leaves_the_callers_matplotlib_alone() -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 31, "text.parse_math": True}):
        render_figures(made_up(SMALL, ["previous"], has_maps=False))
        assert mpl.rcParams["font.size"] == 31


@pytest.mark.slow
def test_the_figures_do_not_load_pyplot() -> None:
    code = (
        "import headscope.report.rendered_figures, headscope.report.sections as f, sys;"
        " f.sections(); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "matplotlib.pyplot" not in loaded.split()


def test_dollars_and_control_signs_in_names_are_drawn_as_they_are() -> None:
    study = made_up(
        SMALL,
        [r"$\frac{$"],
        record={"model": {"name": "a$b$c\x00\x08\u202e\ud800 漢字"}},
        has_maps=False,
    )
    (plate,) = render_figures(study)
    root = ElementTree.fromstring(plate.svg)
    text = " ".join(
        "".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")
    )
    assert "a$b$c" in text
    assert r"$\frac{$" in text
    assert "\u202e" not in text


def test_inlined_figures_share_no_id_and_carry_no_style_sheet() -> None:
    study = made_up(THREE, ["previous", "cls", "entropy", "confidence", "confidence-content"])
    inlined = [
        inline_svg(svg_of(drawing.draw(study)), drawing.name) for drawing in figures_of(study)
    ]
    identities = [identity for svg in inlined for identity in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(set(identities)) == len(identities)
    for svg in inlined:
        for target in re.findall(r'(?:url\(#|href="#)([^)"]+)', svg):
            assert f'id="{target}"' in svg
        assert "<style" not in svg
        assert "<metadata" not in svg


def test_inlining_keeps_shapes_and_text_only() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><script>alert(1)</script>'
        "<style>*{}</style><foreignObject/><g><text>a &lt;b&gt;</text></g></svg>"
    )
    assert inline_svg(svg, "x") == (
        '<svg viewBox="0 0 9 9" style="width: 14px" aria-hidden="true"><g><text>a &lt;b&gt;</text></g></svg>'
    )


CHANGES = np.array([-0.3, -0.1, 0.0, 0.2])


@pytest.mark.parametrize(
    "statistic", ["ablation-loss", "gradient", "gradient-second", "ablation-loss (small)"]
)
def test_worse_has_one_colour_whether_a_loss_rises_or_a_metric_falls(statistic: str) -> None:
    """A rise of the loss is coloured as the same fall of the metric, on every map: figures, page and explorer."""
    of_loss, of_metric = scale_of(statistic, CHANGES), scale_of("ablation-metric", CHANGES)
    for change in CHANGES:
        loss = colours_of(of_loss)(norm_of(of_loss)(change))
        metric = colours_of(of_metric)(norm_of(of_metric)(-change))
        assert loss == pytest.approx(metric, abs=0.02)  # a colour map has 256 steps
    worst = colours_of(of_loss)(norm_of(of_loss)(0.3))
    assert to_hex(worst) == DIVERGING_STOPS[0]
    assert describe_statistic(statistic, CHANGES)["reversed"]
    assert not describe_statistic("ablation-metric", CHANGES)["reversed"]
    assert set(MATTERS.values()) >= {palette.WORSE, palette.BETTER}
    middle = len(DIVERGING_STOPS) // 2
    assert DIVERGING_STOPS.index(palette.WORSE) < middle < DIVERGING_STOPS.index(palette.BETTER)


def test_a_change_without_a_direction_keeps_its_colours() -> None:
    for statistic in ("argmax-offset", "relevance-signed", "novelty"):
        assert not scale_of(statistic, CHANGES).is_reversed


@pytest.mark.parametrize(
    ("statistic", "values", "expected"),
    [
        ("sep", [0.01, 0.09], Scale("share", 0, 1)),
        ("entropy", [1.0, 4.37], Scale("nats", 0, 4.5)),
        ("argmax-offset", [-1, 2], Scale("offset", -2, 2, is_diverging=True)),
        ("argmax-offset", [-23, 1], Scale("offset", -5, 5, is_diverging=True, clips=True)),
        ("novelty", [-0.5, 0.2], Scale("other", -0.5, 0.5, is_diverging=True)),
        ("novelty", [0.001, 0.0437], Scale("other", 0, 0.045)),
        ("novelty", [101.0, 104.0], Scale("other", 101, 104)),
        ("novelty", [3.0, 3.0], Scale("other", 3, 4)),
        ("novelty", [np.nan], Scale("other", 0, 1)),
    ],
)
def test_colour_limits(statistic: str, values: list[float], expected: Scale) -> None:
    result = scale_of(statistic, np.array(values))
    assert (result.kind, result.is_diverging, result.clips) == (
        expected.kind,
        expected.is_diverging,
        expected.clips,
    )
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("statistic", "value", "printed"),
    [
        ("previous", 0.374, ".37"),
        ("previous", 1.0, "1.00"),
        ("previous", 0.0, ".00"),
        ("entropy", 0.014, "0.0"),
        ("distance", 37.26, "37.3"),
        ("argmax-offset", -1.0, "−1"),
        ("argmax-offset", 0.0, "0"),
        ("argmax-offset", 13.0, "+13"),
        ("previous", float("nan"), ""),
    ],
)
def test_a_value_in_a_cell_is_short(statistic: str, value: float, printed: str) -> None:
    assert scale_of(statistic, np.array([value])).cell(value) == printed


def test_lightness_alone_distinguishes_the_colours() -> None:
    def lightness(stop: str) -> float:
        red, green, blue = (int(stop[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lights = [lightness(stop) for stop in SEQUENTIAL_STOPS]
    assert lights == sorted(lights, reverse=True)
    middle = len(DIVERGING_STOPS) // 2
    arms = [lightness(stop) for stop in DIVERGING_STOPS]
    assert arms[: middle + 1] == sorted(arms[: middle + 1])
    assert arms[middle:] == sorted(arms[middle:], reverse=True)


def test_plain_text_is_one_printable_line() -> None:
    assert plain("a\nb\x00c\u2028d\u202ee\ud800") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffd"
    assert plain("x" * 300, 10) == "xxxxxxxxx…"


def test_stacks_come_in_their_order() -> None:
    assert stacks_of(made_up({"cross": (1, 1), "decoder": (1, 1), "encoder": (1, 1)})) == [
        "encoder",
        "decoder",
        "cross",
    ]
