"""Learned masks: a map of pairs of positions, and means over kinds of pairs, after SparseBERT's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import INK, MISSING, MUTED, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import DIVERGING, SEQUENTIAL
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    describe_change,
    examples_of,
    metric_clause,
    metric_name,
)
from headscope.report.section import Section, fact_of_task, needs_table
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import Columns, Part, integer_cell, number_column, text_column
from headscope.report.text import plain, slug, with_noun

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, SIDE, LEFT, GAP, BOTTOM = 7.2, 3.5, 0.6, 1.6, 0.6
PREFIX = "mask/"
KINDS = (
    "for pairs on the diagonal, pairs with a special token, neighbours and all other pairs, weighted by how often "
    "they occur in the texts; lines are 95 % intervals over seeds, if there are several."
)
CHOSEN = (
    "Left: which position (row) may attend to which (column) under the learned mask; with several masks (seeds, "
    "layers or heads), the fraction of them that leave a pair open. Right: the fraction of pairs that is open "
    f"{KINDS}"
)
SOFT = (
    "Left: the importance of attention from one position (row) to another (column): sigmoid(α), where 0.5 is "
    "undecided. Grey: fewer than 5 % of the texts are that long, which is too few to learn from. Right: the mean of "
    f"sigmoid(α) {KINDS}"
)


class LearnedMaskMap(StudyFigure):
    """On the left every pair of positions, on the right how open kinds of pairs are."""

    table = "positions"
    title = "Which positions need to attend to which"

    def __init__(self, aim: str, caption: str = CHOSEN) -> None:
        self.aim, self.caption, self.name = aim, caption, f"learned-mask-{slug(aim)}"

    @classmethod
    def for_study(cls, study: Study) -> Iterable[LearnedMaskMap]:
        caption = SOFT if _is_soft(study) else CHOSEN
        aims = [key.removeprefix(PREFIX) for key in study.maps if key.startswith(PREFIX)]
        return [cls(aim, caption) for aim in aims]

    def applies(self, study: Study) -> bool:
        return PREFIX + self.aim in study.maps and "positions" in study.tables

    def draw(self, study: Study) -> Figure:
        table = study.tables["positions"].query("aim == @self.aim")
        seeds = with_noun(int(table["seeds"].max()), "seed")
        subtitle = f"{model_name(study)} · {plain(self.aim, 60)} · {seeds}"
        with open_sheet(self.title, subtitle, WIDTH, SIDE + BOTTOM, 0.15) as sheet:
            left = sheet.add_axes(LEFT, 0, SIDE, SIDE)
            bar = sheet.add_axes(LEFT + SIDE + 0.1, 0, 0.1, SIDE)
            _draw_map(left, bar, study, study.maps[PREFIX + self.aim])
            start = LEFT + SIDE + GAP
            right = sheet.add_axes(start, 0.45 * SIDE, WIDTH - start - 0.2, 0.55 * SIDE)
            _draw_shares(right, table)
            right.set_xlabel("sigmoid(α)" if _is_soft(study) else "open share")
            return sheet.figure


def _draw_map(ax: Axes, bar: Axes, study: Study, grid: np.ndarray) -> None:
    """Every pair of positions, with a colour bar; grey for positions that too few texts reach."""
    low, high, colours = 0.0, 1.0, SEQUENTIAL
    values: np.ndarray = grid.astype(float)
    if _is_soft(study):
        reached = entry_of(study.record, "learned_masks", "reached") or len(grid)
        position = np.arange(len(grid))
        values = np.where(np.maximum(position[:, None], position) < reached, values, np.nan)
        reach = max(float(np.nanquantile(np.abs(values - 0.5), 0.99)), 0.01)
        low, high, colours = 0.5 - reach, 0.5 + reach, DIVERGING
    ax.set_facecolor(MISSING)  # shows where there is no value
    limits: dict[str, Any] = {"vmin": low, "vmax": high}
    painted = colours.with_extremes(bad=(0, 0, 0, 0))
    ax.imshow(np.ma.masked_invalid(values), painted, interpolation="nearest", **limits)
    ax.set(xlabel="key position", ylabel="query position")
    is_switch = colours is SEQUENTIAL and bool(np.isin(values, (0.0, 1.0)).all())
    ramp = np.linspace(high, low, 2 if is_switch else 256)[:, None]
    limits |= {"extent": (0.0, 1.0, low, high), "aspect": "auto"}
    bar.imshow(ramp, colours, interpolation="none", **limits)
    bar.yaxis.tick_right()
    bar.tick_params(length=0, pad=3)
    bar.set_xticks([])
    if is_switch:
        bar.set_yticks((0.25, 0.75), ("closed", "open"))
    for axes in (ax, bar):
        axes.spines[:].set_visible(False)


def _draw_shares(ax: Axes, table: pd.DataFrame) -> None:
    """A bar for each kind of positions, with its interval."""
    y, values = np.arange(len(table)), table["value"].to_numpy(float)
    ax.barh(y, np.ones(len(table)), color=MISSING, height=0.6)
    ax.barh(y, values, color=SERIES[0], height=0.6)
    ax.hlines(y, table["low"], table["high"], color=INK, linewidth=1.5)
    for i, value in enumerate(values):
        ax.text(1.02, float(i), f"{value:.2f}", va="center", color=MUTED)
    ax.set_yticks(y, table["positions"].tolist())
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.5, 1])
    ax.invert_yaxis()


def _is_soft(study: Study) -> bool:
    """Whether the masks are values between open and closed."""
    return bool(entry_of(study.record, "learned_masks", "options", "is_soft"))


@needs_table("learned_masks")
def part(study: Study, table: pd.DataFrame) -> Part:
    metric = metric_name(study, "learned_masks")
    columns: Columns = {
        "target": text_column("aim", 40),
        "seed": lambda row: integer_cell(row["seed"]),
        **({"masked fraction": number_column("sparsity")} if "sparsity" in table else {}),
        metric: METRIC,
        "change": METRIC_CHANGE,
        "change of loss": LOSS_CHANGE,
    }
    splits = entry_of(study.record, "learned_masks", "splits") or ["one split", "another"]
    if entry_of(study.record, "learned_masks", "options", "frozen"):
        trained = "Only the mask was trained."
    else:
        trained = "The weights were trained with the mask, so a change is due to both."
    note = (
        f"Masks are reported on {plain(splits[1], 30)}: {metric}, its change and that of the loss against the model "
        f"without a mask, paired by example, with 95 % intervals. {trained}"
    )
    options: dict[str, Any] = {"figures": ("learned-mask",), "words": {0}}
    return Part.of("learned-masks", "Which positions matter", note, columns, table, **options)


@needs_table("learned_masks")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The sparsest mask that was learned."""
    rows = table.nlargest(1, "sparsity") if "sparsity" in table else table
    row = rows.to_dict("records")[0]
    share = (
        f"; it forbids {finite(row['sparsity']):.0%} of the pairs of positions"
        if "sparsity" in row
        else ""
    )
    sentence = f"With the learned mask “{plain(row['aim'], 40)}”, {metric_clause(study, 'learned_masks', row)}"
    after = f"{describe_change(row, examples_of(study, 'learned_masks'))}{share}"
    yield Finding("", sentence, (), kind="learned", after=after)


SECTION = Section(
    figures={26: LearnedMaskMap},
    parts={105: part},
    findings={160: findings},
    facts={80: fact_of_task("learned_masks", "which positions need to attend to which for")},
)
