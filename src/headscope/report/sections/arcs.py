"""What does it look like when a head shows a relation? One short sentence for each of a few relations, with arcs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path

from headscope.report.drawing.palette import INK, MUTED, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import figure_with_heading, heading_height, style
from headscope.report.head_cards import by_gain, words_of
from headscope.report.section import Section
from headscope.report.study_access import model_name, stacks_of
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

MOST = 4
SHORTEST, LONGEST = 4, 16  # words that fit side by side
FAINT = 0.05  # weights below are not drawn
WIDTH, SIDE = 5.4, 0.15
PANEL, TALLEST = 1.36, 0.6
SIGN, SPACE = 0.082, 0.15  # inches: a letter of 9.5 points, between words


class Arcs(StudyFigure):
    table = "examples"
    name = "arcs"
    title = "Relations as heads see them"
    caption = (
        "One sentence for each relation that a head shows best: the coloured arc leads from the word that looks to the "
        "word where its attention is largest, and the two stand in the relation; grey arcs are the other words' "
        "largest weights, darker where larger. Picked as the clearest cases: how often it is so is in the table."
    )

    def applies(self, study: Study) -> bool:
        return bool(_chosen(study))

    def draw(self, study: Study) -> Figure:
        rows = _chosen(study)
        subtitle = f"{model_name(study)} · the head that was best for the relation, in a sentence where it is clear"
        with style():
            width = max(WIDTH, *(2 * SIDE + _places(words_of(row["words"]))[1] for row in rows))
            top = heading_height(width, subtitle) + 0.1
            height = top + PANEL * len(rows) + 0.05
            fig = figure_with_heading(width, height, self.title, subtitle)
            for i, row in enumerate(rows):
                bottom = height - top - PANEL * (i + 1)
                ax = fig.add_axes(
                    (SIDE / width, bottom / height, 1 - 2 * SIDE / width, PANEL / height)
                )
                ax.set(xlim=(0, width - 2 * SIDE), ylim=(0, PANEL))
                ax.axis("off")
                colour = SERIES[i % len(SERIES)]
                _draw_sentence(ax, row, colour, _heading(row, study))
            return fig


def _chosen(study: Study) -> list[dict[str, Any]]:
    """One short typical example of the best head of each relation, the largest gains first."""
    best, examples = study.tables.get("relations"), study.tables.get("examples")
    if best is None or examples is None or not len(examples):
        return []
    found: dict[str, dict[str, Any]] = {}
    for row in by_gain(best):
        if row["relation"] in found or len(found) == MOST:
            continue
        here = examples[
            (examples["stack"] == row["stack"])
            & (examples["layer"] == row["layer"])
            & (examples["head"] == row["head"])
            & examples["role"].isin([row["relation"], str(RoleName.syntactic(row["relation"]))])
            & (examples["direction"] == row["direction"])
            & (examples["kind"] == "typical")
        ]
        short = [
            one
            for one in here.to_dict("records")
            if SHORTEST <= len(words_of(one["words"])) <= LONGEST
        ]
        if short:
            far = max(
                short, key=lambda one: (abs(one["query"] - one["key"]) > 1, one["weight"])
            )  # neighbours are dull
            evidence = {name: row[name] for name in ("relation", "accuracy", "baseline")}
            found[row["relation"]] = far | evidence
    return list(found.values())


def _heading(row: dict[str, Any], study: Study) -> str:
    address = f"{row['layer']}.{row['head']}"
    if len(stacks_of(study)) > 1:
        address = f"{row['stack']}.{address}"
    return (
        f"{plain(row['relation'], 30)}, {plain(row['direction'], 20)} · head {plain(address)} · right in "
        f"{row['accuracy']:.0%} of the pairs, the best offset in {row['baseline']:.0%}"
    )


def _places(words: list[str]) -> tuple[list[float], float]:
    """The middle of each word, and the width of all, in inches."""
    middles, at = [], 0.0
    for word in words:
        wide = max(len(word), 1) * SIGN
        middles.append(at + wide / 2)
        at += wide + SPACE
    return middles, at


def _draw_sentence(ax: Axes, row: dict[str, Any], colour: str, heading: str) -> None:
    words = words_of(row["words"])
    middles, _ = _places(words)
    query, key = int(row["query"]), int(row["key"])
    ax.text(0, PANEL - 0.06, heading, fontsize=8, fontweight="bold", va="top")
    base = 0.27
    for i, (word, x) in enumerate(zip(words, middles, strict=True)):
        face = "bold" if i in (query, key) else "normal"
        shade = INK if i in (query, key) else MUTED
        ax.text(
            x, base - 0.03, word, ha="center", va="top", fontsize=9.5, color=shade, fontweight=face
        )
    arcs = [arc for arc in _arcs(row["arcs"]) if arc[2] >= FAINT and max(arc[:2]) < len(words)]
    widest = max(abs(middles[one] - middles[other]) for one, other, _ in [*arcs, (query, key, 1.0)])
    for other, target, weight in arcs:
        if (other, target) != (query, key):
            _draw_arc(
                ax, middles[other], middles[target], base, widest, MUTED, 0.8, 0.15 + 0.55 * weight
            )
    _draw_arc(ax, middles[query], middles[key], base, widest, colour, 2.0, 1.0)
    top = base + _height(middles[query], middles[key], widest)
    middle = (middles[query] + middles[key]) / 2
    ax.text(
        middle, top + 0.03, f"{row['weight']:.2f}", ha="center", va="bottom", fontsize=7, color=INK
    )


def _arcs(text: object) -> list[tuple[int, int, float]]:
    arcs = json.loads(str(text)) if isinstance(text, str) else []
    return [(int(query), int(key), float(weight)) for query, key, weight in arcs]


def _height(one: float, other: float, widest: float) -> float:
    return float(TALLEST * max(abs(one - other) / widest, 0.1) ** 0.6)


def _draw_arc(
    ax: Axes,
    start: float,
    stop: float,
    base: float,
    widest: float,
    colour: str,
    wide: float,
    alpha: float,
) -> None:
    if start == stop:
        return
    tall = (
        4 / 3 * _height(start, stop, widest)
    )  # where the control points of a cubic must be for it to rise so high
    lean = 0.12 * (stop - start)
    points = [
        (start, base),
        (start + lean, base + tall),
        (stop - lean, base + tall),
        (stop, base + 0.04),
    ]
    path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    ax.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=wide, alpha=alpha))
    size = 5 if wide < 1 else 8
    tip: dict[str, Any] = {
        "arrowstyle": "-|>",
        "mutation_scale": size,
        "linewidth": 0,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    back = (stop - 0.1 * lean, base + 0.06)
    ax.add_patch(FancyArrowPatch(back, (stop, base), color=colour, alpha=alpha, **tip))


SECTION = Section(figures={42: Arcs})
