"""The figures of patterns draw the numbers of the study: every layer and head, named, and none made up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from studies import RECORD

from headscope.report.drawing.palette import MISSING
from headscope.report.sections import fixed, patterns
from headscope.study.study import Study
from headscope.tables import Row, to_frame

SHARES = {
    "vertical": 0.5,
    "diagonal": 0.2,
    "vertical-diagonal": 0.0,
    "block": 0.04,
    "heterogeneous": 0.26,
}


def study_of(rows: list[tuple[str, int, int, str, float]]) -> Study:
    return Study(to_frame(Row(*row, math.nan, math.nan, 9) for row in rows), {}, RECORD)


def texts_of(figure: Figure) -> list[str]:
    """Everything written inside the panels."""
    return [text.get_text() for ax in figure.axes for text in ax.texts]


# Shares of maps


def with_patterns(stacks: tuple[str, ...] = ("encoder",)) -> Study:
    """Two layers of two heads: the first layer as in SHARES, all maps of the second diagonal."""
    rows = []
    for stack in stacks:
        for head in range(2):
            for name, share in SHARES.items():
                rows.append((stack, 0, head, f"pattern-{name}", share))
                rows.append((stack, 1, head, f"pattern-{name}", float(name == "diagonal")))
    return study_of(rows)


def widths(ax: object) -> dict[str, list[float]]:
    """The lengths of the bars of each pattern by its name in the legend: the whole, then each layer."""
    return {bars.get_label(): [float(bar.get_width()) for bar in bars] for bars in ax.containers}  # type: ignore[attr-defined]


def test_every_bar_is_the_mean_share_of_its_heads() -> None:
    study = with_patterns()
    (drawing,) = patterns.Patterns.for_study(study)
    assert drawing.applies(study)
    (ax,) = drawing.draw(study).axes
    result = widths(ax)
    assert list(result) == ["vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous"]
    expected = [
        [(share + (name == "diagonal")) / 2, share, name == "diagonal"]
        for name, share in SHARES.items()
    ]
    np.testing.assert_allclose(list(result.values()), expected)
    ends = [bar.get_x() + bar.get_width() for bar in list(ax.containers)[-1]]
    np.testing.assert_allclose(ends, 1.0)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "all layers",
        "layer 0",
        "layer 1",
    ]


def test_a_share_is_written_where_there_is_space_for_it() -> None:
    study = with_patterns()
    (drawing,) = patterns.Patterns.for_study(study)
    labels = texts_of(drawing.draw(study))
    assert sorted(labels) == sorted(
        [".25", ".60", ".13", ".50", ".20", ".26", "1.00"]
    )  # not the .04 of blocks


def test_every_stack_has_a_panel_of_patterns() -> None:
    study = with_patterns(("cross", "encoder"))
    (drawing,) = patterns.Patterns.for_study(study)
    figure = drawing.draw(study)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["encoder", "cross"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous"]


def test_a_head_without_maps_does_not_count() -> None:
    study = with_patterns()
    study.heads = study.heads[~((study.heads["layer"] == 1) & (study.heads["head"] == 1))]
    (drawing,) = patterns.Patterns.for_study(study)
    (ax,) = drawing.draw(study).axes
    np.testing.assert_allclose(widths(ax)["diagonal"], [(0.2 + 0.2 + 1) / 3, 0.2, 1.0])


def test_patterns_need_every_class() -> None:
    study = with_patterns()
    study.heads = study.heads[study.heads["statistic"] != "pattern-diagonal"]
    (drawing,) = patterns.Patterns.for_study(study)
    assert not drawing.applies(study)


# The nearest fixed pattern


def with_distances(layers: int = 2, heads: int = 3) -> Study:
    """The nearest pattern of head h of layer l is number l + h, at a distance of 0.01 for each head before it."""
    names = list(fixed.COLOURS)
    rows = []
    for layer, head in np.ndindex(layers, heads):
        for i, name in enumerate(names):
            near = 0.01 * (layer * heads + head)
            distance = near if i == (layer + head) % len(names) else 0.69
            rows.append(("encoder", layer, head, f"js-{name}", distance))
    return study_of(rows)


def colours_of(figure: Figure) -> np.ndarray:
    """[head, colour]: the cells as they are painted, layer by layer."""
    return np.asarray(figure.axes[0].collections[0].get_array()).reshape(-1, 3)


def test_every_head_is_named_by_its_nearest_pattern_and_how_far_it_is() -> None:
    study = with_distances()
    (drawing,) = fixed.FixedPatternsFigure.for_study(study)
    assert drawing.applies(study)
    figure = drawing.draw(study)
    assert texts_of(figure) == [
        "self\n.00",
        "prev\n.01",
        "next\n.02",
        "prev\n.03",
        "next\n.04",
        "left\n.05",
    ]
    places = [text.get_position() for text in figure.axes[0].texts]
    np.testing.assert_allclose([x for x, _ in places], [0.5, 1.5, 2.5] * 2)
    assert [int(y) for _, y in places] == [0, 0, 0, 1, 1, 1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(fixed.COLOURS)


def test_a_cell_has_the_colour_of_its_pattern_paler_where_it_is_far() -> None:
    painted = colours_of(
        next(iter(fixed.FixedPatternsFigure.for_study(with_distances()))).draw(with_distances())
    )
    names = ["current", "previous", "next", "previous", "next", "left"]
    for number, (colour, name) in enumerate(zip(painted, names, strict=True)):
        depth = 1 - 0.01 * number / math.log(2)
        np.testing.assert_allclose(
            colour, 1 - (1 - np.array(to_rgb(fixed.COLOURS[name]))) * depth, atol=1e-6
        )


def test_a_head_without_a_distance_is_grey_and_has_no_name() -> None:
    study = with_distances()
    study.heads = study.heads[~((study.heads["layer"] == 0) & (study.heads["head"] == 1))]
    figure = next(iter(fixed.FixedPatternsFigure.for_study(study))).draw(study)
    assert texts_of(figure) == ["self\n.00", "next\n.02", "prev\n.03", "next\n.04", "left\n.05"]
    np.testing.assert_allclose(colours_of(figure)[1], to_rgb(MISSING))


@pytest.mark.parametrize(("heads", "has_names"), [(16, True), (17, False)])
def test_many_heads_are_only_coloured(heads: int, has_names: bool) -> None:
    study = with_distances(1, heads)
    figure = next(iter(fixed.FixedPatternsFigure.for_study(study))).draw(study)
    assert len(colours_of(figure)) == heads
    assert len(texts_of(figure)) == (heads if has_names else 0)


def test_a_stack_without_distances_has_no_figure() -> None:
    study = study_of([("encoder", 0, 0, "entropy", 1.0), ("decoder", 0, 0, "js-uniform", 0.1)])
    assert [drawing.name for drawing in fixed.FixedPatternsFigure.for_study(study)] == [
        "fixed-decoder"
    ]
