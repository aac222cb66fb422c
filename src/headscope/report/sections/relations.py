"""The best head for each relation, compared with a fixed offset, after Clark's table 1 and Voita's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.report.drawing.palette import MUTED, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import (
    annotate,
    draw_dot,
    draw_interval,
    draw_legend_below,
    draw_rules,
)
from headscope.report.finding import (
    Finding,
    Headline,
    head_estimate,
    join_details,
    percent,
    percent_interval,
    short_number,
)
from headscope.report.head_cards import DIRECTIONS, by_gain
from headscope.report.scale import format_offset
from headscope.report.section import Fact, Section, needs_table
from headscope.report.study_access import entry_of, model_name, records_of, threshold_of
from headscope.report.table_cells import (
    Cell,
    Columns,
    Part,
    count_cell,
    head_column,
    interval_column,
    is_missing,
    number_cell,
    number_column,
    text_column,
)
from headscope.report.text import group_digits, plain
from headscope.statistics.relations import MARGIN
from headscope.tables import STACKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

BEST_RELATIONS = 3
TABLE = "relations"
MOST_RELATIONS = 28
HEADINGS = {
    "dependent": "dependent → syntactic head",
    "governor": "syntactic head → dependent",
    "received": "syntactic head → dependent,\ncompared over all words",
}
# Universal Dependencies in plain words, for headlines
RELATIONS = {
    "acl": "clauses that modify a noun",
    "advcl": "adverbial clauses",
    "advmod": "adverbs",
    "amod": "adjectives",
    "appos": "appositions",
    "aux": "auxiliary verbs",
    "case": "prepositions and case markers",
    "cc": "conjunctions",
    "ccomp": "clauses as objects",
    "compound": "parts of compounds",
    "conj": "conjuncts",
    "cop": "copulas",
    "det": "determiners",
    "iobj": "indirect objects",
    "mark": "subordinating conjunctions",
    "nmod": "nouns that modify a noun",
    "nsubj": "subjects",
    "nummod": "numbers",
    "obj": "direct objects",
    "obl": "oblique nouns",
    "punct": "punctuation marks",
    "xcomp": "clauses without their own subject",
}
BELOW = "less far above, or below"
CONTROL = "random-weight control"
ROW = 0.245  # inches
PANELS = Panels(wide=2.5, tall=0, left=1.75, right=0.3, bottom=0.85, above=0.32, gap_x=0.3)
BESIDE = 0.14  # width of an address such as 5.11, as a share of the axis


class BestHeads(StackFigure):
    """A panel for each direction, a row for each relation with a best head, the most frequent first."""

    stem = "relations"
    table = TABLE
    title = "The best head for each relation"
    caption = (
        "A dot is the head that was best on the selection half of the sentences; the number next to it is "
        "layer.head. Its accuracy and 95 % interval are from the report half. A bar is the best fixed offset, such as "
        "“one word back”. A dot is filled if the accuracy is above the bar by the margin that a role requires (0.1 by "
        "default). A cross is the "
        "best head of the random-weight control, if there is one. The number of word pairs is in brackets."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        stacks = {row["stack"] for row in records_of(study, TABLE) if pd.notna(row["accuracy"])}
        return [stack for stack in STACKS if stack in stacks]

    def draw(self, study: Study) -> Figure:
        table = study.tables[TABLE].query("stack == @self.stack").dropna(subset="accuracy")
        panels = [name for name in HEADINGS if name in set(table["direction"])]
        counts = table.drop_duplicates("relation").set_index("relation")["count"]
        counts = counts.sort_values(ascending=False)
        relations = list(counts.index[:MOST_RELATIONS])
        share = "accuracy: the largest weight is on the right word"
        subtitle = f"{model_name(study)}, {plain(self.stack)} · {share}"
        if len(counts) > len(relations):
            subtitle += f" · the {len(relations)} most frequent of {len(counts)} relations"
        margin = threshold_of(study, "relation", MARGIN)
        sizes = replace(PANELS, tall=ROW * len(relations))
        with sizes.open(self.title, subtitle, 1, len(panels)) as sheet:
            for column, direction in enumerate(panels):
                ax = sheet.add_panel(0, column)
                rows = table[table["direction"] == direction].set_index("relation")
                _draw_panel(ax, rows, relations, margin)
                ax.set_title(HEADINGS[direction], fontweight="bold")
                labels = [f"{plain(name, 22)} ({counts[name]:,})" for name in relations]
                ax.set_yticks(range(len(labels)), labels if not column else [""] * len(labels))
            best = {label: f"best head, {label}" for label in (_above(margin), BELOW)}
            others = {label: label for label in ("best offset", CONTROL)}
            draw_legend_below(sheet.figure, 4, best | others)
            return sheet.figure


def _above(margin: float) -> str:
    return f"{margin * 100:g} points above the offset"


def _draw_panel(ax: Axes, rows: pd.DataFrame, relations: list[str], margin: float) -> None:
    for y, relation in enumerate(relations):
        if relation in rows.index:
            _draw_row(ax, rows.loc[relation], y, margin)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(relations) - 0.5, -0.5), xlabel="share of word pairs")
    draw_rules(ax, "x")
    ax.tick_params(axis="y", length=0)


def _draw_row(ax: Axes, row: Any, y: int, margin: float) -> None:
    is_above = row["accuracy"] >= row["baseline"] + margin
    bar = [row["baseline"]] * 2, [y - 0.36, y + 0.36]
    ax.plot(*bar, color=SERIES[1], linewidth=1.8, label="best offset")
    if pd.notna(row["control"]):
        style: dict[str, Any] = {"color": MUTED, "markersize": 4, "label": CONTROL}
        ax.plot(row["control"], y, "x", zorder=2, **style)
    start = end = row["accuracy"]
    if pd.notna(row["low"]):
        draw_interval(ax, row["low"], row["high"], y)
        start, end = row["low"], row["high"]
    draw_dot(ax, row["accuracy"], y, _above(margin) if is_above else BELOW, is_filled=is_above)
    # The address is next to the interval, on the side with more room, and clear of the bar.
    if end < row["baseline"] < end + BESIDE:
        end = row["baseline"]
    x, shift, side = (end, 5, "left") if end < 1 - BESIDE else (start, -5, "right")
    address = f"{int(row['layer'])}.{int(row['head'])}"
    text: dict[str, Any] = {"fontsize": 6.8, "color": SERIES[0]}
    annotate(ax, address, (x, y), (shift, 0), ha=side, va="center", **text)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "relation": text_column("relation", 60),
        "direction": lambda row: Cell(
            direction_label(row["direction"]), plain(row["direction"], 20)
        ),
        "head": head_column(study),
        "accuracy": interval_column("accuracy"),
        "gain": lambda row: number_cell(row["accuracy"] - row["baseline"], sign=True),
        "baseline": lambda row: number_cell(row["baseline"], _offset(row["baseline_offset"])),
        "same data": lambda row: number_cell(row["same_data_best_accuracy"], _papers_head(row)),
        "control": number_column("control"),
        "pairs": lambda row: count_cell(row["count"]),
    }
    note = (
        "In a parse tree each word (the dependent) depends on another word, its syntactic head. There are three ways "
        "to count a pair as right. “Dependent → syntactic head”: the dependent's largest attention weight is on its "
        "syntactic head. “Syntactic head → dependent”: the syntactic head's largest weight is on the dependent. "
        "“Compared over all words”: no other word gives the dependent more weight than its syntactic head does. "
        "Attention heads were selected on one half of the sentences and are reported on the other. The baseline is "
        "the best fixed offset, and the gain is over it. The offset is counted from the dependent, but in "
        "“syntactic head → dependent” from the syntactic head. −1 is the word before. “Same data”: selected and "
        "reported on all sentences, as in the papers. “Control”: the best head of the same model with random "
        "weights. No head is selected for relations with fewer than 100 pairs."
    )
    heading, figures = "Relations between words", ("relations", "arcs")
    return Part.of("relations", heading, note, columns, table, figures=figures, words={0, 1})


def direction_label(direction: object) -> str:
    """A direction in words, without "governor"."""
    name = plain(direction, 20)
    return DIRECTIONS.get(name, name)


def relation_words(relation: object) -> str:
    """`direct objects (obj)`; a relation that is not of Universal Dependencies has only its name."""
    name = plain(relation, 60)
    words = RELATIONS.get(name.partition(":")[0])
    return f"{words} ({name})" if words else f"the relation “{name}”"


def _offset(value: Any) -> str:
    return "" if is_missing(value) else f" at {format_offset(value)}"


def _papers_head(row: dict[Any, Any]) -> str:
    layer, head = row["same_data_best_layer"], row["same_data_best_head"]
    return "" if is_missing(layer) else f" by {int(layer)}.{int(head)}"


@needs_table(TABLE)
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The relations with the largest gains over the best offset and the control, each in its best direction."""
    best: dict[str, dict[Any, Any]] = {}
    for row in by_gain(table):
        if row["gain"] > 0 and not str(row["relation"]).startswith("all"):
            best.setdefault(row["relation"], row)
    if not best:
        sentence = "There is no evidence that a head follows a relation better than the best fixed offset does"
        yield Finding("", sentence, (), kind="relations", is_null=True)
    for row in list(best.values())[:BEST_RELATIONS]:
        head, rival = head_estimate(study, row, "accuracy"), row["accuracy"] - row["gain"]
        is_clear, strength = head.low > rival, head.strength(rival)
        headline = Headline(
            f"links {relation_words(row['relation'])} to the words they depend on in",
            percent(head.value),
            "of the word pairs",
            join_details(
                percent_interval(head.low, head.high),
                f"the best fixed offset is right in {percent(row['baseline'])}",
                f"direction: {direction_label(row['direction'])}",
            ),
            head.head,
        )
        after = (
            f" of the pairs {direction_label(row['direction'])}; best fixed offset: {short_number(row['baseline'])}; "
            "the head was selected on other sentences"
        )
        yield Finding(
            "",
            headline.sentence,
            (head,),
            kind="relations",
            is_clear=is_clear,
            strength=strength,
            after=after,
            headline=headline,
        )


def _fact(record: Mapping[str, Any]) -> str:
    return f"relations in {group_digits(entry_of(record, 'treebank', 'used') or 'the')} parsed sentences"


SECTION = Section(
    figures={41: BestHeads},
    parts={20: part},
    findings={80: findings},
    facts={20: Fact("treebank", _fact)},
)
