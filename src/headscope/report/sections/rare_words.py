"""Heads that point at rare words, compared with simple guesses, after Voita's section 5.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import annotate, draw_rules, whole_numbers
from headscope.report.finding import Finding, head_estimate, name_head, short_number
from headscope.report.section import Section, needs_table
from headscope.report.study_access import model_name, rows_for, threshold_of, values_for
from headscope.report.table_cells import (
    NONE,
    Cell,
    Part,
    count_cell,
    estimate_cell,
    head_cell,
    optional_head_key,
    text_cell,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

STATISTIC = "two-rarest"
HALF = 0.5  # Voita's rule, unless the study has another threshold
NAMED = 6  # heads whose address is written
LEFT, RIGHT, BOTTOM, PANEL_HIGH = 0.62, 1.45, 0.52, 2.9
LINES = {
    "chance": (0, (1, 1.5)),
    "longest word": (0, (4, 2)),
    "last content word": (0, (4, 1.5, 1, 1.5)),
}
APART = 0.045  # shares: lines nearer than that are named one above the other


class RareWordsFigure(StackFigure):
    """A dot for each head of a stack by layer, a line for each guess."""

    stem = "rare-words"
    statistics = (STATISTIC,)
    title = "Heads that attend to rare words"
    caption = (
        "Each dot is a head. The y axis is the share of sentences in which most words attend to one of the two rarest "
        "words; named heads have 95 % intervals. Dashed lines are simple guesses without attention. A rare-word head "
        "is above all lines. It also attends to the single rarest word more often than every guess (not drawn)."
    )

    def draw(self, study: Study) -> Figure:
        rows = values_for(study, STATISTIC, self.stack)
        subtitle = f"{model_name(study)}, {plain(self.stack)} · sentences where most words attend to a rare word"
        layers = int(rows["layer"].max()) + 1
        wide, body = min(max(0.95 * layers, 3.2), 8.5), PANEL_HIGH + BOTTOM
        with open_sheet(self.title, subtitle, LEFT + wide + RIGHT, body, 0.12) as sheet:
            ax = sheet.add_axes(LEFT, 0, wide, PANEL_HIGH)
            _draw_heads(ax, rows)
            limit = threshold_of(study, "rare", HALF)
            _draw_guesses(ax, study.tables.get("rare_words"), layers, limit)
            ax.set(xlim=(-0.5, layers - 0.5), ylim=(-0.02, 1.02))
            ax.set(xlabel="layer", ylabel="share of sentences")
            whole_numbers(ax.xaxis, 12)
            draw_rules(ax, "y")
            return sheet.figure


def _draw_heads(ax: Axes, rows: pd.DataFrame) -> None:
    most = max(int(rows["head"].max()), 1)
    across = rows["layer"] + 0.8 * (rows["head"] / most - 0.5)  # heads of a layer side by side
    ax.scatter(across, rows["value"], s=16, color=SERIES[0], alpha=0.75, linewidths=0, zorder=3)
    for row in rows.assign(across=across).nlargest(NAMED, "value").to_dict("records"):
        x, top = row["across"], row["value"]
        if row["high"] == row["high"]:  # not NaN
            top = row["high"]
            ends = [row["low"], row["high"]]
            ax.plot([x, x], ends, color=SERIES[0], linewidth=1.6, alpha=0.45, zorder=2)
        upright: dict[str, Any] = {"ha": "center", "va": "bottom", "rotation": 90}
        address = f"{row['layer']}.{row['head']}"
        annotate(ax, address, (x, top), (0, 4), fontsize=6.8, color=SERIES[0], **upright)


def _draw_guesses(ax: Axes, table: pd.DataFrame | None, layers: int, limit: float) -> None:
    """A line for each guess, and one where the role begins, named at the right without overlapping."""
    lines: list[tuple[float, str, Any, str]] = [(limit, "threshold", "solid", RULE)]
    if table is not None:
        for row in table[table["kind"] == STATISTIC].to_dict("records"):
            pattern = LINES.get(str(row["baseline"]), "dashed")
            lines.append((float(row["value"]), plain(row["baseline"], 20), pattern, SERIES[1]))
    least = -1.0
    for value, label, pattern, colour in sorted(lines, key=lambda line: line[0]):
        ax.axhline(value, color=colour, linewidth=1.1, linestyle=pattern, zorder=1)
        least = max(value, least + APART)
        text: dict[str, Any] = {"va": "center", "fontsize": 7, "color": MUTED, "clip_on": False}
        ax.text(layers - 0.45, least, f"{label} {value:.2f}", **text)


@needs_table("rare_words")
def part(study: Study, table: pd.DataFrame) -> Part:
    rows = []
    for kind in (str(kind) for kind in dict.fromkeys(table["kind"])):
        answers = [
            (row, Cell("best head", "a"), head_cell(study, optional_head_key(row)))
            for row in rows_for(study, kind).nlargest(1, "value").to_dict("records")
        ]
        answers += [
            (row, text_cell(row["baseline"], 40), Cell(NONE))
            for row in table[table["kind"] == kind].to_dict("records")
        ]
        rows += [
            [Cell(plain(kind, 20), kind), by, head, estimate_cell(row), count_cell(row["count"])]
            for row, by, head in answers
        ]
    note = (
        "The share of sentences in which most words attend to the rarest word, or to one of the two rarest, next to "
        "the share for which a simple guess is right. The head was selected and reported on the same sentences, which "
        "is optimistic."
    )
    columns = ("target", "method", "head", "share of sentences", "sentences")
    return Part("rare-words", "Rare words", note, columns, rows, words={0, 1})


@needs_table("rare_words")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The head that points at rare words most often, compared with the best guess."""
    rows, guesses = values_for(study, STATISTIC), table[table["kind"] == STATISTIC]
    if not len(rows) or not len(guesses):
        return
    guess = guesses.nlargest(1, "value").iloc[0]
    rows = rows.sort_values(["stack", "layer", "head"])
    best = rows.nlargest(1, "value").to_dict("records")[0]
    head = head_estimate(study, best, "value")
    evidence = head.evidence(float(guess["value"]))
    sentence = f"{name_head(head.head)} attends to one of the two rarest words more often than any other head"
    after = (
        f" of the sentences; best simple guess ({plain(guess['baseline'], 40)}): "
        f"{short_number(guess['value'])}"
    )
    yield Finding(STATISTIC, sentence, (head,), kind="relations", after=after, **evidence)


SECTION = Section(figures={43: RareWordsFigure}, parts={40: part}, findings={100: findings})
