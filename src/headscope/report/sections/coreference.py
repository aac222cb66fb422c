"""Heads that find the antecedent of a mention, compared with simple rules, after Clark's table 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.report.drawing.palette import MUTED, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import annotate, draw_interval, draw_legend_below, draw_rules
from headscope.report.finding import (
    Finding,
    Headline,
    head_estimate,
    join_details,
    percent,
    percent_interval,
    short_number,
)
from headscope.report.section import Fact, Section, needs_table
from headscope.report.study_access import entry_of, model_name, records_of
from headscope.report.table_cells import (
    Columns,
    Part,
    count_cell,
    head_column,
    interval_column,
    number_column,
    text_column,
)
from headscope.report.text import group_digits, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ENOUGH_DOCUMENTS = 20  # with fewer, intervals from resampled documents are too narrow
TABLE = "coreference"
HEADINGS = {
    "mentions": "among head words of earlier mentions",
    "words": "among all words of the window",
}
RULES = {  # column: (name, marker)
    "chance": ("chance", "|"),
    "nearest": ("nearest mention", "s"),
    "head_match": ("same head word", "^"),
    "rules": ("four rules", "D"),
}
KINDS = {
    "all": "all mentions",
    "pronoun": "pronouns",
    "proper": "proper names",
    "nominal": "other nouns",
}
ROW = 0.46  # inches
PANELS = Panels(wide=2.9, tall=0, left=1.55, right=0.2, bottom=0.78, above=0.32, gap_x=0.25)
BELOW = (
    0.24  # the marks of rules are this share of a row below the head's mark, which would hide them
)


class CoreferenceFigure(StudyFigure):
    """A panel for each set of candidates, a line for each kind of mention."""

    table = TABLE
    name = "coreference"
    title = "How often the best head finds the antecedent"
    caption = (
        "A blue dot is the head that was best on the selection half of the documents; the number next to it is "
        "layer.head. Its accuracy and 95 % interval are from the report half. The other marks are simple rules on the "
        "same mentions. The head word of a mention is determined by a rule, not by a parser."
    )

    def applies(self, study: Study) -> bool:
        return bool(records_of(study, TABLE))

    def draw(self, study: Study) -> Figure:
        table = study.tables[TABLE]
        panels = [candidates for candidates in HEADINGS if candidates in set(table["candidates"])]
        kinds = [kind for kind in KINDS if kind in set(table["kind"])]
        share = "share of mentions whose head word attends most to an antecedent's"
        subtitle = f"{model_name(study)} · {share}"
        sizes = replace(PANELS, tall=ROW * len(kinds))
        with sizes.open(self.title, subtitle, 1, len(panels)) as sheet:
            for column, candidates in enumerate(panels):
                ax = sheet.add_panel(0, column)
                _draw_panel(ax, table[table["candidates"] == candidates].set_index("kind"), kinds)
                ax.set_title(HEADINGS[candidates], fontweight="bold")
                if column:
                    ax.tick_params(labelleft=False)
            draw_legend_below(sheet.figure)
            return sheet.figure


def _draw_panel(ax: Axes, rows: pd.DataFrame, kinds: list[str]) -> None:
    labels = []
    for y, kind in enumerate(kinds):
        row: Any = rows.loc[kind]
        labels.append(f"{KINDS[kind]} ({int(row['count']):,})")
        for i, (column, (label, marker)) in enumerate(RULES.items()):
            if pd.notna(row[column]):
                colour = MUTED if column == "chance" else SERIES[i]
                mark: dict[str, Any] = {"color": colour, "markersize": 5, "linestyle": "none"}
                ax.plot(row[column], y + BELOW, marker, label=label, **mark)
        if pd.notna(row["accuracy"]):
            _draw_head(ax, row, y)
    ax.set_yticks(range(len(kinds)), labels)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(kinds) - 0.5, -0.5), xlabel="share of mentions")
    draw_rules(ax, "x")


def _draw_head(ax: Axes, row: Any, y: int) -> None:
    if pd.notna(row["low"]):
        draw_interval(ax, row["low"], row["high"], y)
    x = row["accuracy"]
    dot: dict[str, Any] = {"color": SERIES[0], "markersize": 6.5, "linestyle": "none"}
    ax.plot(x, y, "o", zorder=4, label="best head", **dot)
    address = plain(f"{int(row['layer'])}.{int(row['head'])}", 12)
    annotate(ax, address, (x, y), (0, 5), ha="center", fontsize=7, color=SERIES[0])


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "mentions": text_column("kind", 20),
        "candidates": text_column("candidates", 20),
        "head": head_column(study),
        "accuracy": interval_column("accuracy"),
        **{name: number_column(column) for column, (name, _) in RULES.items()},
        "same data": number_column("same_data_best_accuracy"),
        "count": lambda row: count_cell(row["count"]),
    }
    note = (
        "How often a mention's head word attends most to the head word of an antecedent, among the head "
        "words of earlier "
        "mentions or among all words. Heads were selected on one half of the documents and are reported on the other. "
        "The count is over both halves. “Same data”: selected and reported on all documents."
    )
    documents = entry_of(study.record, "coreference", "documents")
    if isinstance(documents, int) and documents < ENOUGH_DOCUMENTS:
        note += f" There are only {documents} documents, so the intervals are too narrow."
    return Part.of("coreference", "Coreference", note, columns, table, words={0, 1})


@needs_table(TABLE)
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The accuracy of the best head for all mentions, compared with the best rule that reads no attention."""
    rows = table[(table["kind"] == "all") & (table["candidates"] == "mentions")]
    for row in rows.dropna(subset="accuracy").to_dict("records"):
        estimate = head_estimate(study, row, "accuracy")
        rule = max((r for r in RULES if pd.notna(row[r])), key=lambda r: float(row[r]))
        value, name = row[rule], RULES[rule][0]
        evidence = estimate.evidence(float(value))
        headline = Headline(
            "finds the antecedent of",
            percent(estimate.value),
            "of the mentions",
            join_details(
                percent_interval(estimate.low, estimate.high),
                f"the best rule without attention ({name}) is right for {percent(value)}",
            ),
            estimate.head,
        )
        after = (
            f" of the mentions; the best rule without attention ({name}): {short_number(value)}; the head was "
            "selected on other documents"
        )
        yield Finding(
            "antecedent",
            headline.sentence,
            (estimate,),
            kind="relations",
            after=after,
            headline=headline,
            **evidence,
        )


def _fact(record: Mapping[str, Any]) -> str:
    documents = entry_of(record, "coreference", "documents")
    return f"antecedents in {group_digits(documents or 'the')} documents"


SECTION = Section(
    figures={45: CoreferenceFigure},
    parts={30: part},
    findings={90: findings},
    facts={30: Fact("coreference", _fact)},
)
