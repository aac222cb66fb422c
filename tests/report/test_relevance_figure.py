"""The figure and the table of relevance by layer show the numbers of relevance_layers.csv."""

from __future__ import annotations

import pandas as pd
import pytest
from studies import RECORD

from headscope.report.sections import figures_of, parts_of
from headscope.report.sections.relevance_layers import RelevanceLayers
from headscope.study.study import Study
from headscope.tables import Row, to_frame

PARTS = {
    "leaves": 1.0,
    "enters": 0.8,
    "biases": -0.3,
    "source": 0.4,
    "lost": 0.1,
    "heads": 0.25,
    "cross-heads": 0.35,
}


def study(stacks: tuple[str, ...]) -> Study:
    rows = []
    for stack in stacks:
        for layer in range(-1, 3):
            for part, value in PARTS.items():
                if (part in ("source", "cross-heads") and stack == "encoder") or (
                    part == "heads" and layer < 0
                ):
                    continue
                value = value + layer / 10
                key = {"stack": stack, "layer": layer, "part": part}
                rows.append(
                    key | {"value": value, "low": value - 0.01, "high": value + 0.02, "count": 9}
                )
    heads = to_frame(
        [
            Row(stack, layer, 0, "relevance", 1.0, 1.0, 1.0, 9)
            for stack in stacks
            for layer in range(2)
        ]
    )
    return Study(
        heads,
        {},
        RECORD | {"importance": {"rules": "attnlrp"}},
        {"relevance_layers": pd.DataFrame(rows)},
    )


@pytest.mark.parametrize("stacks", [("encoder",), ("encoder", "decoder")])
def test_lines_are_the_table_s(stacks: tuple[str, ...]) -> None:
    single = study(stacks)
    assert "relevance-layers" in [figure.name for figure in figures_of(single)]
    drawn = RelevanceLayers().draw(single)
    assert len(drawn.axes) == 3 * len(stacks)
    shown = [[line.get_ydata()[0] for line in ax.lines] for ax in drawn.axes]
    assert shown[0] == pytest.approx([0.7])  # enters layer -1
    assert shown[1] == pytest.approx([0.25])  # heads, of layer 0
    assert shown[2] == pytest.approx([-0.4, 0.0])  # biases, lost
    assert list(drawn.axes[0].lines[0].get_xdata()) == [-1, 0, 1, 2]
    if len(stacks) == 2:
        assert sorted(shown[4]) == pytest.approx(
            [0.25, 0.25, 0.3]
        )  # heads of layer 0; cross-heads and source of -1
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    colours = [handle.get_color() for handle in drawn.legends[0].legend_handles]
    assert len(set(colours)) == len(labels), "every line has a colour of its own"


def test_the_table_begins_before_the_first_layer() -> None:
    (part,) = (one for one in parts_of(study(("encoder", "decoder"))) if one.name == "relevance")
    assert [row[0].text for row in part.rows[:2]] == ["encoder −1", "encoder 0"]
    biases = part.columns.index("biases")
    assert part.rows[1][biases].text == "−0.300 [−0.310, −0.280]"
    assert part.rows[1][part.columns.index("source")].text == "–"
    assert part.figures == ("relevance-layers",)
