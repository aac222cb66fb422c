"""Which head shows which relation, and would a fixed offset do as well? After Clark's table 1 and Voita's figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.report.drawing.data_source import Source, table
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.style import headed, heading_height, style
from headscope.report.study_access import model_name
from headscope.report.text import plain, slug
from headscope.statistics.relations import MARGIN
from headscope.tables import STACKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 41
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


@dataclass(frozen=True)
class BestHeads:
    """A panel for each direction, a line for each relation that is ranked, the most frequent first."""

    stack: str
    name: str
    title: str = "The best head for each relation"
    caption: str = (
        "A dot is the head that was best on one half of the sentences, as it does on the other half, with its 95 % "
        "interval and its LAYER.HEAD; filled where it is above the best fixed offset (the bar) by what a role "
        "asks for. A cross is the best head of a twin with random weights, where one was asked. The number of pairs is "
        "in brackets."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return bool(len(_ranked(study, self.stack)))

    def source(self, study: Study) -> Source:
        return table(TABLE)

    def draw(self, study: Study) -> Figure:
        table = _ranked(study, self.stack)
        panels = [one for one in HEADINGS if (table["direction"] == one).any()]
        counts = (
            table.drop_duplicates("relation")
            .set_index("relation")["count"]
            .sort_values(ascending=False)
        )
        relations = list(counts.index[:MOST_RELATIONS])
        subtitle = f"{model_name(study)}, {plain(self.stack)} · share of related pairs where the largest weight is right"
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


def drawings(study: Study) -> Iterator[BestHeads]:
    table = study.tables.get(TABLE)
    for stack in STACKS if table is not None else ():
        yield BestHeads(stack, f"relations-{slug(stack)}")


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
    ax.grid(axis="x", color=RULE, linewidth=0.5, alpha=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=RULE, labelcolor=MUTED)
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
        ax.plot(
            [row["low"], row["high"]],
            [place] * 2,
            color=SERIES[0],
            linewidth=2,
            alpha=0.45,
            zorder=3,
        )
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
