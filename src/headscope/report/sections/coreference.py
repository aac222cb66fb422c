"""Which head finds what a mention refers to, and would a simple rule do as well? After Clark's table 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.report.drawing.palette import MUTED, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    draw_interval,
    draw_legend_below,
    draw_rules,
    headed,
    heading_height,
    style,
)
from headscope.report.finding import Finding, excludes, measured_in, short_number, strength_of
from headscope.report.section import Fact, Section
from headscope.report.study_access import model_name, recorded
from headscope.report.table_cells import (
    Columns,
    Part,
    count_cell,
    head_column,
    interval_column,
    number_column,
    rows_of,
    text_column,
)
from headscope.report.text import grouped, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ENOUGH_DOCUMENTS = 20  # below, intervals from resampled documents are too narrow

TABLE = "coreference"
HEADINGS = {
    "mentions": "among head words of earlier mentions",
    "words": "among all words of the window",
}
RULES = {  # column: (what it is called, marker)
    "chance": ("blind guess", "|"),
    "nearest": ("nearest mention", "s"),
    "head_match": ("same head word", "^"),
    "rules": ("four sieves", "D"),
}
KINDS = {
    "all": "all mentions",
    "pronoun": "pronouns",
    "proper": "proper names",
    "nominal": "other nouns",
}
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BOTTOM = 1.55, 0.2, 0.78
PANEL_WIDTH, ROW_HEIGHT, GAP_X = 2.9, 0.46, 0.25
BELOW = 0.24  # of a row: the rules' marks would hide behind the head's


class CoreferenceFigure(StudyFigure):
    """A panel for each set of candidates, a line for each kind of mention."""

    table = TABLE
    name = "coreference"
    title = "How often the best head finds the antecedent"
    caption = (
        "A blue dot is the head that was best on one half of the documents, as it does on the other half, with its "
        "95 % interval and its LAYER.HEAD; the other marks are rules on the same mentions, and a head that finds "
        "more than they do is to the right of them. Head words of mentions are found by a rule, not by a parse."
    )

    def applies(self, study: Study) -> bool:
        return TABLE in study.tables and bool(len(study.tables[TABLE]))

    def draw(self, study: Study) -> Figure:
        table = study.tables[TABLE]
        panels = [among for among in HEADINGS if (table["candidates"] == among).any()]
        kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
        subtitle = (
            f"{model_name(study)} · share of mentions whose head word looks most at an antecedent's"
        )
        with style():
            width = MARGIN_LEFT + len(panels) * (PANEL_WIDTH + GAP_X) - GAP_X + MARGIN_RIGHT
            top = heading_height(width, subtitle) + 0.32
            body = ROW_HEIGHT * len(kinds)
            height = top + body + MARGIN_BOTTOM
            fig = headed(width, height, self.title, subtitle)
            for column, among in enumerate(panels):
                left = MARGIN_LEFT + column * (PANEL_WIDTH + GAP_X)
                bounds = (left / width, MARGIN_BOTTOM / height, PANEL_WIDTH / width, body / height)
                ax = fig.add_axes(bounds)
                _draw_panel(ax, table[table["candidates"] == among].set_index("kind"), kinds)
                ax.set_title(HEADINGS[among], fontweight="bold")
                if column:
                    ax.tick_params(labelleft=False)
            drawn = [ax.get_legend_handles_labels() for ax in fig.axes]
            named = {
                label: handle
                for handles, labels in drawn
                for handle, label in zip(handles, labels, strict=True)
            }
            draw_legend_below(fig, list(named.values()), list(named), len(named))
            return fig


def _draw_panel(ax: Axes, rows: pd.DataFrame, kinds: list[str]) -> None:
    labels = []
    for place, kind in enumerate(kinds):
        row: Any = rows.loc[kind]
        labels.append(f"{KINDS[kind]} ({int(row['count']):,})")
        for i, (column, (label, marker)) in enumerate(RULES.items()):
            if pd.notna(row[column]):
                colour = MUTED if column == "chance" else SERIES[i]
                ax.plot(
                    row[column],
                    place + BELOW,
                    marker,
                    color=colour,
                    markersize=5,
                    linestyle="none",
                    label=label,
                )
        if pd.notna(row["accuracy"]):
            _draw_head(ax, row, place)
    ax.set_yticks(range(len(kinds)), labels)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(kinds) - 0.5, -0.5), xlabel="share of mentions")
    draw_rules(ax, "x")


def _draw_head(ax: Axes, row: Any, place: int) -> None:
    if pd.notna(row["low"]):
        draw_interval(ax, row["low"], row["high"], place)
    ax.plot(
        row["accuracy"],
        place,
        "o",
        color=SERIES[0],
        markersize=6.5,
        zorder=4,
        linestyle="none",
        label="best head",
    )
    address = plain(f"{int(row['layer'])}.{int(row['head'])}", 12)
    ax.annotate(
        address,
        (row["accuracy"], place),
        (0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=7,
        color=SERIES[0],
    )


def part(study: Study) -> Part | None:
    table = study.tables.get("coreference")
    if table is None:
        return None
    columns: Columns = {
        "mentions": text_column("kind", 20),
        "candidates": text_column("candidates", 20),
        "head": head_column(study),
        "accuracy": interval_column("accuracy"),
        **{name: number_column(column) for column, (name, _) in RULES.items()},
        "papers' way": number_column("same_data_best_accuracy"),
        "count": lambda row: count_cell(row["count"]),
    }
    rows = rows_of(table.to_dict("records"), columns)
    note = (
        "How often a mention's head word looks most at the head word of an antecedent, among the head words of earlier "
        "mentions or among all words. Heads were chosen on one half of the documents and measured on the other; count "
        "is over both halves."
    )
    documents = recorded(study.record, "coreference", "documents")
    if isinstance(documents, int) and documents < ENOUGH_DOCUMENTS:
        note += f" These are only {documents} documents: intervals from so few are too narrow."
    return Part("coreference", "Coreference", note, tuple(columns), rows, words={0, 1})


def findings(study: Study) -> Iterator[Finding]:
    table = study.tables.get("coreference")
    if table is None:
        return
    rows = table[
        (table["kind"] == "all") & (table["candidates"] == "mentions") & table["accuracy"].notna()
    ]
    for row in rows.to_dict("records"):
        sentence = (
            f"Antecedents: the nearest mention with the same head word is right for {short_number(row['head_match'])} "
            "of the mentions; the head chosen on other documents is"
        )
        found, rival = measured_in(study, row, "accuracy"), float(row["head_match"])
        strength = strength_of(found.value, found.low, found.high, rival)
        is_clear = excludes(found, rival)
        yield Finding(
            "antecedent", sentence, (found,), kind="relations", is_clear=is_clear, strength=strength
        )


def _fact(record: Mapping[str, Any]) -> str:
    return (
        f"antecedents in {grouped(recorded(record, 'coreference', 'documents') or 'the')} documents"
    )


SECTION = Section(
    figures={45: CoreferenceFigure},
    parts={100: part},
    findings={90: findings},
    facts={30: Fact("coreference", _fact)},
)
