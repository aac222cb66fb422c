"""Which head shows which relation, and would a fixed offset do as well? After Clark's table 1 and Voita's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.report.drawing.palette import MUTED, SERIES
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import draw_interval, draw_rules, headed, heading_height, style
from headscope.report.finding import Finding, measured_in, short_number, strength_of
from headscope.report.head_cards import by_gain
from headscope.report.scale import signed
from headscope.report.section import Fact, Section
from headscope.report.study_access import model_name, recorded
from headscope.report.table_cells import (
    Columns,
    Part,
    count_cell,
    head_column,
    interval_column,
    is_missing,
    number,
    number_column,
    rows_of,
    text_column,
)
from headscope.report.text import grouped, plain
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
    "dependent": "dependent looks at governor",
    "governor": "governor looks at dependent",
    "received": "of all words, governor looks most",
}
BELOW = "less than that"
LEFT, RIGHT, BOTTOM = 1.75, 0.3, 0.85
PANEL, GAP, ROW = 2.5, 0.3, 0.245
BESIDE = 0.14  # of the axis: what an address takes


class BestHeads(StackFigure):
    """A panel for each direction, a line for each relation that is ranked, the most frequent first."""

    stem = "relations"
    table = TABLE
    title = "The best head for each relation"
    caption = (
        "A dot is the head that was best on one half of the sentences, as it does on the other half, with its 95 % "
        "interval and its LAYER.HEAD; filled where it is above the best fixed offset (the bar) by what a role "
        "asks for. A cross is the best head of a twin with random weights, where one was asked. The number of pairs is "
        "in brackets."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return [stack for stack in STACKS if len(_ranked(study, stack))]

    def draw(self, study: Study) -> Figure:
        table = _ranked(study, self.stack)
        panels = [one for one in HEADINGS if (table["direction"] == one).any()]
        counts = (
            table.drop_duplicates("relation")
            .set_index("relation")["count"]
            .sort_values(ascending=False)
        )
        relations = list(counts.index[:MOST_RELATIONS])
        subtitle = (
            f"{model_name(study)}, {plain(self.stack)} · share of related pairs where the largest"
            f" weight is right"
        )
        if len(counts) > len(relations):
            subtitle += f" · the {len(relations)} most frequent of {len(counts)} relations"
        with style():
            width = LEFT + len(panels) * (PANEL + GAP) - GAP + RIGHT
            top, body = heading_height(width, subtitle) + 0.32, ROW * len(relations)
            height = top + body + BOTTOM
            fig = headed(width, height, self.title, subtitle)
            for column, direction in enumerate(panels):
                left = LEFT + column * (PANEL + GAP)
                ax = fig.add_axes((left / width, BOTTOM / height, PANEL / width, body / height))
                _draw_panel(
                    ax,
                    table[table["direction"] == direction].set_index("relation"),
                    relations,
                    _margin(study),
                )
                ax.set_title(HEADINGS[direction], fontweight="bold")
                labels = [f"{plain(name, 22)} ({counts[name]:,})" for name in relations]
                ax.set_yticks(
                    range(len(relations)), labels if not column else [""] * len(relations)
                )
            _draw_legend(fig, _above(_margin(study)))
            return fig


def _ranked(study: Study, stack: str) -> pd.DataFrame:
    table = study.tables.get(TABLE)
    if table is None or not len(table):
        return pd.DataFrame()
    return table[(table["stack"] == stack) & table["accuracy"].notna()]


def _margin(study: Study) -> float:
    """What a relation must gain to be a role in this study."""
    return float(study.record.get("options", {}).get("thresholds", {}).get("relation", MARGIN))


def _above(margin: float) -> str:
    return f"{margin * 100:g} points above the offset"


def _draw_panel(ax: Axes, rows: pd.DataFrame, relations: list[str], margin: float) -> None:
    for place, relation in enumerate(relations):
        if relation in rows.index:
            _draw_row(ax, rows.loc[relation], place, margin)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(relations) - 0.5, -0.5), xlabel="share of pairs")
    draw_rules(ax, "x")
    ax.tick_params(axis="y", length=0)


def _draw_row(ax: Axes, row: Any, place: int, margin: float) -> None:
    is_above = row["accuracy"] >= row["baseline"] + margin
    ax.plot(
        [row["baseline"]] * 2,
        [place - 0.36, place + 0.36],
        color=SERIES[1],
        linewidth=1.8,
        label="best offset",
    )
    if pd.notna(row["control"]):
        ax.plot(
            row["control"], place, "x", color=MUTED, markersize=4, label="random twin", zorder=2
        )
    if pd.notna(row["low"]):
        draw_interval(ax, row["low"], row["high"], place)
    fill = SERIES[0] if is_above else "none"
    label = _above(margin) if is_above else BELOW
    dot: dict[str, Any] = {
        "markerfacecolor": fill,
        "markeredgecolor": SERIES[0],
        "markersize": 5.5,
        "linestyle": "none",
    }
    ax.plot(row["accuracy"], place, "o", zorder=4, label=label, **dot)
    # Beside the interval, on the side where there is room, and clear of the bar.
    start, end = (
        (row["low"], row["high"]) if pd.notna(row["low"]) else (row["accuracy"], row["accuracy"])
    )
    if end < row["baseline"] < end + BESIDE:
        end = row["baseline"]
    is_right = end < 1 - BESIDE
    ax.annotate(
        f"{int(row['layer'])}.{int(row['head'])}",
        (end if is_right else start, place),
        (5 if is_right else -5, 0),
        textcoords="offset points",
        ha="left" if is_right else "right",
        va="center",
        fontsize=6.8,
        color=SERIES[0],
    )


def _draw_legend(fig: Figure, above: str) -> None:
    drawn = [ax.get_legend_handles_labels() for ax in fig.axes]
    named = {
        label: handle
        for handles, labels in drawn
        for handle, label in zip(handles, labels, strict=True)
    }
    order = [label for label in (above, BELOW, "best offset", "random twin") if label in named]
    texts = [f"best head, {label}" if label in (above, BELOW) else label for label in order]
    fig.legend(
        [named[label] for label in order],
        texts,
        loc="lower center",
        ncols=4,
        frameon=False,
        fontsize=7.5,
    )


def part(study: Study) -> Part | None:
    table = study.tables.get("relations")
    if table is None:
        return None
    columns: Columns = {
        "relation": text_column("relation", 60),
        "direction": text_column("direction", 20),
        "head": head_column(study),
        "accuracy": interval_column("accuracy"),
        "gain": lambda row: number(row["accuracy"] - row["baseline"], sign=True),
        "baseline": lambda row: number(row["baseline"], _offset(row["baseline_offset"])),
        "papers' way": lambda row: number(row["same_data_best_accuracy"], _papers_head(row)),
        "control": number_column("control"),
        "pairs": lambda row: count_cell(row["count"]),
    }
    rows = rows_of(table.to_dict("records"), columns)
    note = (
        "dependent: a dependent's largest weight is on its governor; governor: the governor's largest is on this "
        "dependent; received: of all words, the governor looks most at the dependent. Each head was chosen on one half "
        "of the sentences and measured on the other; gain is over the best fixed offset. The papers choose and measure "
        "on the same sentences: that is in a column of its own. The control is the best head of a twin with random "
        "weights. Relations with fewer than 100 pairs are listed, and no head is chosen."
    )
    figures = ("relations", "arcs")
    return Part(
        "relations",
        "Relations between words",
        note,
        tuple(columns),
        rows,
        figures=figures,
        words={0, 1},
    )


def _offset(value: Any) -> str:
    return "" if is_missing(value) else f" at {signed(value)}"


def _papers_head(row: dict[Any, Any]) -> str:
    layer, head = row["same_data_best_layer"], row["same_data_best_head"]
    return "" if is_missing(layer) else f" by {int(layer)}.{int(head)}"


def findings(study: Study) -> Iterator[Finding]:
    """The relations with the largest gains over what needs no trained head, of each the best direction."""
    table = study.tables.get("relations")
    if table is None:
        return
    best: dict[str, dict[Any, Any]] = {}
    for row in by_gain(table):
        if row["gain"] > 0 and not str(row["relation"]).startswith("all"):
            best.setdefault(row["relation"], row)
    if not best and len(table):
        told = "No evidence that a head shows a relation better than the best fixed offset does"
        yield Finding("", told, (), kind="relations")
    for row in list(best.values())[:BEST_RELATIONS]:
        sentence = (
            f"Relation {plain(row['relation'], 60)}, {plain(row['direction'], 20)}: the best fixed offset is right in "
            f"{short_number(row['baseline'])} of the pairs; the head chosen on other sentences is"
        )
        found, rival = (
            measured_in(study, row, "accuracy"),
            float(row["accuracy"]) - float(row["gain"]),
        )
        strength = strength_of(found.value, found.low, found.high, rival)
        yield Finding(
            "", sentence, (found,), kind="relations", is_clear=found.low > rival, strength=strength
        )


def _fact(record: Mapping[str, Any]) -> str:
    return f"relations in {grouped(recorded(record, 'treebank', 'used') or 'the')} parsed sentences"


SECTION = Section(
    figures={41: BestHeads},
    parts={90: part},
    findings={80: findings},
    facts={20: Fact("treebank", _fact)},
)
