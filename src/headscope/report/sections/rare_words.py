"""Does a head point at rare words more often than a simple guess would? After Voita's section 5.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import draw_rules, headed, heading_height, style, whole_numbers
from headscope.report.finding import Finding, excludes, measured_in, short_number, strength_of
from headscope.report.section import Section
from headscope.report.study_access import model_name
from headscope.report.table_cells import NONE, Cell, Part, count_cell, head_cell, measured, place_of
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

STATISTIC = "two-rarest"
HALF = 0.5  # Voita's rule, where the study does not say otherwise
NAMED = 6  # heads whose address is written
LEFT, RIGHT, BOTTOM, PANEL_HIGH = 0.62, 1.45, 0.52, 2.9
LINES = {
    "chance": (0, (1, 1.5)),
    "longest word": (0, (4, 2)),
    "last content word": (0, (4, 1.5, 1, 1.5)),
}
APART = 0.045  # shares: lines nearer than that are named one above the other


class RareWordsFigure(StackFigure):
    stem = "rare-words"
    statistics = (STATISTIC,)
    title = "Heads that point at rare words"
    caption = (
        "Each dot is a head: in what share of the sentences most words point at one of the two rarest words, with the "
        "95 % intervals of the heads that are named. The broken lines are guesses without any attention; "
        "a head above all of them and above the unbroken line is called a rare-word head if it also points at the "
        "rarest word itself more often than every guess does (not drawn here)."
    )

    def draw(self, study: Study) -> Figure:
        heads = study.heads
        rows = heads[
            (heads["stack"] == self.stack)
            & (heads["statistic"] == STATISTIC)
            & heads["value"].notna()
        ]
        subtitle = f"{model_name(study)}, {plain(self.stack)} · share of sentences where most words point at a rare one"
        with style():
            layers = int(rows["layer"].max()) + 1
            width = LEFT + min(max(0.95 * layers, 3.2), 8.5) + RIGHT
            top = heading_height(width, subtitle) + 0.12
            height = top + PANEL_HIGH + BOTTOM
            fig = headed(width, height, self.title, subtitle)
            bounds = (
                LEFT / width,
                BOTTOM / height,
                (width - LEFT - RIGHT) / width,
                PANEL_HIGH / height,
            )
            ax = fig.add_axes(bounds)
            _draw_heads(ax, rows)
            _draw_guesses(ax, study.tables.get("rare_words"), layers, _limit(study))
            ax.set(
                xlim=(-0.5, layers - 0.5),
                ylim=(-0.02, 1.02),
                xlabel="layer",
                ylabel="share of sentences",
            )
            whole_numbers(ax.xaxis, 12)
            draw_rules(ax, "y")
            return fig


def _draw_heads(ax: Axes, rows: pd.DataFrame) -> None:
    most = max(int(rows["head"].max()), 1)
    across = rows["layer"] + 0.8 * (rows["head"] / most - 0.5)  # heads of a layer side by side
    ax.scatter(across, rows["value"], s=16, color=SERIES[0], alpha=0.75, linewidths=0, zorder=3)
    for row in rows.assign(across=across).nlargest(NAMED, "value").to_dict("records"):
        x = row["across"]
        top = row["value"]
        if row["high"] == row["high"]:  # not NaN
            top = row["high"]
            ax.plot(
                [x, x],
                [row["low"], row["high"]],
                color=SERIES[0],
                linewidth=1.6,
                alpha=0.45,
                zorder=2,
            )
        ax.annotate(
            f"{row['layer']}.{row['head']}",
            (x, top),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=90,
            fontsize=6.8,
            color=SERIES[0],
        )


def _limit(study: Study) -> float:
    """Where the role begins in this study."""
    return float(study.record.get("options", {}).get("thresholds", {}).get("rare", HALF))


def _draw_guesses(ax: Axes, table: pd.DataFrame | None, layers: int, limit: float) -> None:
    """A line for each guess, and one where the role begins, named at the right without overlapping."""
    named: list[tuple[float, str, Any, str]] = [(limit, "the rule's", "solid", RULE)]
    if table is not None:
        for row in table[table["kind"] == STATISTIC].to_dict("records"):
            pattern = LINES.get(str(row["baseline"]), "dashed")
            named.append((float(row["value"]), plain(row["baseline"], 20), pattern, SERIES[1]))
    least = -1.0
    for value, label, pattern, colour in sorted(named, key=lambda one: one[0]):
        ax.axhline(value, color=colour, linewidth=1.1, linestyle=pattern, zorder=1)
        place = max(value, least + APART)
        least = place
        ax.text(
            layers - 0.45,
            place,
            f"{label} {value:.2f}",
            va="center",
            fontsize=7,
            color=MUTED,
            clip_on=False,
        )


def part(study: Study) -> Part | None:
    table = study.tables.get("rare_words")
    if table is None:
        return None
    kinds = [str(kind) for kind in dict.fromkeys(table["kind"])]
    rows = []
    for kind in kinds:
        best = study.heads[study.heads["statistic"] == kind].nlargest(1, "value")
        for row in best.to_dict("records"):
            rows.append(
                [
                    Cell(plain(kind, 20), kind),
                    Cell("the head that does it most", "a"),
                    head_cell(study, place_of(row)),
                    measured(row["value"], row["low"], row["high"]),
                    count_cell(row["count"]),
                ]
            )
        for row in table[table["kind"] == kind].to_dict("records"):
            guess = plain(row["baseline"], 40)
            answer = measured(row["value"], row["low"], row["high"])
            rows.append(
                [
                    Cell(plain(kind, 20), kind),
                    Cell(guess, guess),
                    Cell(NONE),
                    answer,
                    count_cell(row["count"]),
                ]
            )
    note = (
        "In what share of the sentences most words point at the rarest word, or at one of the two rarest, and how "
        "often simple guesses would be right. The head was picked on the sentences it is measured on."
    )
    columns = ("question", "answer by", "head", "right", "sentences")
    return Part("rare-words", "Rare words", note, columns, rows, words={0, 1})


def findings(study: Study) -> Iterator[Finding]:
    table = study.tables.get("rare_words")
    rows = study.heads[(study.heads["statistic"] == "two-rarest") & study.heads["value"].notna()]
    if table is None or not len(rows) or not (table["kind"] == "two-rarest").any():
        return
    guess = table[table["kind"] == "two-rarest"].nlargest(1, "value").iloc[0]
    sentence = (
        f"One of the two rarest words: the best simple guess ({plain(guess['baseline'], 40)}) is right in "
        f"{short_number(guess['value'])} of the sentences; the head that most often points there is"
    )
    best = rows.sort_values(
        ["value", "stack", "layer", "head"], ascending=[False, True, True, True]
    ).to_dict("records")
    found, rival = measured_in(study, best[0], "value"), float(guess["value"])
    strength = strength_of(found.value, found.low, found.high, rival)
    is_clear = excludes(found, rival)
    yield Finding(
        "two-rarest", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength
    )


SECTION = Section(figures={43: RareWordsFigure}, parts={110: part}, findings={100: findings})
