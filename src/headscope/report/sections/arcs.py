"""Examples of relations that heads show: a short sentence with arcs for each of a few relations."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from matplotlib.patches import FancyArrowPatch, PathPatch
from matplotlib.path import Path

from headscope.report.drawing.palette import INK, MUTED, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.head_cards import by_gain, words_of
from headscope.report.section import Section
from headscope.report.shared_heads import head_key
from headscope.report.study_access import model_name, records_of, stacks_of
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

MOST = 4
SHORTEST, LONGEST = 4, 16  # words that fit side by side
FAINT = 0.05  # smaller weights are not drawn
WIDTH, SIDE = 5.4, 0.15
# In inches: height of a sentence with its arcs, height of its words, height of the highest arc
PANEL, BASE, TALLEST = 1.36, 0.27, 0.6
LETTER, SPACE = 0.082, 0.15  # in inches: width of a letter of 9.5 points, space between words


class Arcs(StudyFigure):
    """A panel for each relation: the words of a sentence, and an arc for the largest weight of each."""

    table = "examples"
    name = "arcs"
    title = "Relations in example sentences"
    caption = (
        "One sentence for each of the relations that a head follows best. The coloured arc leads from the query word "
        "to the word with its largest weight; these two words are in the relation. Grey arcs show the largest weights "
        "of the other words; darker arcs are larger weights. The sentences are clear examples, not typical ones."
    )

    def applies(self, study: Study) -> bool:
        return bool(_select(study))

    def draw(self, study: Study) -> Figure:
        rows = _select(study)
        subtitle = f"{model_name(study)} · the best head for each relation, in a clear example"
        wide = max(WIDTH - 2 * SIDE, *(_lay_out(words_of(row["words"]))[1] for row in rows))
        body = PANEL * len(rows) + 0.05
        with open_sheet(self.title, subtitle, wide + 2 * SIDE, body, 0.1) as sheet:
            for i, row in enumerate(rows):
                ax = sheet.add_axes(SIDE, PANEL * i, wide, PANEL)
                ax.set(xlim=(0, wide), ylim=(0, PANEL))
                ax.axis("off")
                _draw_sentence(ax, row, SERIES[i % len(SERIES)], _heading(row, study))
            return sheet.figure


def _select(study: Study) -> list[dict[str, Any]]:
    """One short typical example of the best head of each relation, the largest gains first."""
    examples: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for example in records_of(study, "examples"):
        is_short = SHORTEST <= len(words_of(example["words"])) <= LONGEST
        if is_short and example["kind"] == "typical":
            examples[*head_key(example), example["role"], example["direction"]].append(example)
    relations: dict[str, dict[str, Any]] = {}
    for row in by_gain(study.tables["relations"]) if "relations" in study.tables else ():
        name = row["relation"]
        roles = dict.fromkeys((name, str(RoleName.syntactic(name))))
        of_head = [e for role in roles for e in examples[*head_key(row), role, row["direction"]]]
        if of_head and name not in relations and len(relations) < MOST:
            # Prefer words that are not neighbours: a link between neighbours could be due to position alone.
            best = max(of_head, key=lambda e: (abs(e["query"] - e["key"]) > 1, e["weight"]))
            relations[name] = best | {key: row[key] for key in ("relation", "accuracy", "baseline")}
    return list(relations.values())


def _heading(row: dict[str, Any], study: Study) -> str:
    address = f"{row['layer']}.{row['head']}"
    if len(stacks_of(study)) > 1:
        address = f"{row['stack']}.{address}"
    return (
        f"{plain(row['relation'], 30)}, {plain(row['direction'], 20)} · head {plain(address)} · right in "
        f"{row['accuracy']:.0%} of the pairs, the best offset in {row['baseline']:.0%}"
    )


def _lay_out(words: list[str]) -> tuple[list[float], float]:
    """The middle of each word, and the width of the sentence, in inches."""
    middles, start = [], 0.0
    for word in words:
        wide = max(len(word), 1) * LETTER
        middles.append(start + wide / 2)
        start += wide + SPACE
    return middles, start


def _draw_sentence(ax: Axes, row: dict[str, Any], colour: str, heading: str) -> None:
    words = words_of(row["words"])
    middles, _ = _lay_out(words)
    query, key = int(row["query"]), int(row["key"])
    ax.text(0, PANEL - 0.06, heading, fontsize=8, fontweight="bold", va="top")
    bold, normal = {"color": INK, "fontweight": "bold"}, {"color": MUTED, "fontweight": "normal"}
    for i, (word, x) in enumerate(zip(words, middles, strict=True)):
        text: dict[str, Any] = bold if i in (query, key) else normal
        ax.text(x, BASE - 0.03, word, ha="center", va="top", fontsize=9.5, **text)
    arcs = [arc for arc in _arcs(row["arcs"]) if arc[2] >= FAINT and max(arc[:2]) < len(words)]
    widest = max(abs(middles[a] - middles[b]) for a, b, _ in [*arcs, (query, key, 1.0)])
    for start, stop, weight in arcs:
        if (start, stop) != (query, key):
            line = {"color": MUTED, "linewidth": 0.8, "alpha": 0.15 + 0.55 * weight}
            _draw_arc(ax, middles[start], middles[stop], widest, line)
    line = {"color": colour, "linewidth": 2.0, "alpha": 1.0}
    _draw_arc(ax, middles[query], middles[key], widest, line)
    top = BASE + _height(middles[query], middles[key], widest)
    middle = (middles[query] + middles[key]) / 2
    below: dict[str, Any] = {"ha": "center", "va": "bottom"}
    ax.text(middle, top + 0.03, f"{row['weight']:.2f}", fontsize=7, color=INK, **below)


def _arcs(text: object) -> list[tuple[int, int, float]]:
    arcs = json.loads(str(text)) if isinstance(text, str) else []
    return [(int(query), int(key), float(weight)) for query, key, weight in arcs]


def _height(start: float, stop: float, widest: float) -> float:
    return float(TALLEST * max(abs(start - stop) / widest, 0.1) ** 0.6)


def _draw_arc(ax: Axes, start: float, stop: float, widest: float, line: dict[str, Any]) -> None:
    """An arrow from one word to another. line: color, linewidth and alpha."""
    if start == stop:
        return
    # The curve reaches three quarters of the height of its two control points.
    control = BASE + 4 / 3 * _height(start, stop, widest)
    lean = 0.12 * (stop - start)
    points = [(start, BASE), (start + lean, control), (stop - lean, control), (stop, BASE + 0.04)]
    path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    ax.add_patch(PathPatch(path, fill=False, **line))
    size = 5 if line["linewidth"] < 1 else 8
    tip: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": size, "shrinkA": 0, "shrinkB": 0}
    back = (stop - 0.1 * lean, BASE + 0.06)
    ax.add_patch(FancyArrowPatch(back, (stop, BASE), **tip, **line | {"linewidth": 0}))


SECTION = Section(figures={42: Arcs})
