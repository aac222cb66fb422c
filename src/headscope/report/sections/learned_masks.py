"""Which positions matter: a learned mask as a map, and its mean over kinds of positions, after SparseBERT's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import INK, MISSING, MUTED, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    DIVERGING,
    SEQUENTIAL,
    figure_with_heading,
    heading_height,
    style,
)
from headscope.report.finding import Finding, finite
from headscope.report.metric_changes import (
    LOSS_CHANGE,
    METRIC,
    METRIC_CHANGE,
    change_sentence,
    examples_of,
    metric_name,
)
from headscope.report.section import Section, fact_of_task
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import (
    Columns,
    Part,
    integer_cell,
    number_column,
    rows_of,
    text_column,
)
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, SIDE, LEFT, GAP, BOTTOM = 7.2, 3.5, 0.6, 1.6, 0.6
PREFIX = "mask/"
KINDS = (
    "over the diagonal, pairs with a special token, neighbours and all others, each pair weighted by how often it "
    "occurs in the texts; lines are 95 % intervals over seeds, where there are several."
)
CHOSEN = (
    "Left: which position (row) may attend to which (column) by the mask that was learned; where there are several "
    "(seeds, layers or heads), the share of them that leave a pair open. Right: the share of attention that is open "
    f"{KINDS}"
)
SOFT = (
    "Left: how much attention from a position (row) to another (column) matters: sigmoid(α), undecided at 0.5. Grey: "
    f"fewer than 5 % of the texts reach that far, and too little was learned. Right: the mean of sigmoid(α) {KINDS}"
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
        seeds = int(table["seeds"].max())
        subtitle = (
            f"{model_name(study)} · {plain(self.aim, 60)} · {seeds} seed{'' if seeds == 1 else 's'}"
        )
        with style():
            height = heading_height(WIDTH, subtitle) + 0.15 + SIDE + BOTTOM
            fig = figure_with_heading(WIDTH, height, self.title, subtitle)
            axes = fig.add_axes((LEFT / WIDTH, BOTTOM / height, SIDE / WIDTH, SIDE / height))
            bar = fig.add_axes(
                ((LEFT + SIDE + 0.1) / WIDTH, BOTTOM / height, 0.1 / WIDTH, SIDE / height)
            )
            _draw_map(axes, bar, study, study.maps[PREFIX + self.aim])
            start = LEFT + SIDE + GAP
            right = fig.add_axes(
                (
                    start / WIDTH,
                    BOTTOM / height,
                    (WIDTH - start - 0.2) / WIDTH,
                    0.55 * SIDE / height,
                )
            )
            _bars(
                right,
                table["positions"].tolist(),
                *(table[c].to_numpy(float) for c in ("value", "low", "high")),
            )
            right.set_xlabel("sigmoid(α)" if _is_soft(study) else "open share")
        return fig


def _draw_map(axes: Axes, bar: Axes, study: Study, grid: np.ndarray) -> None:
    """Every pair, and beside it what the colours mean; grey where too few texts reach."""
    low, high, colours = 0.0, 1.0, SEQUENTIAL
    shown: np.ndarray = grid.astype(float)
    if _is_soft(study):
        reached = entry_of(study.record, "learned_masks", "reached") or len(grid)
        place = np.arange(len(grid))
        shown = np.where(np.maximum(place[:, None], place) < reached, shown, np.nan)
        reach = max(float(np.nanquantile(np.abs(shown - 0.5), 0.99)), 0.01)
        low, high, colours = 0.5 - reach, 0.5 + reach, DIVERGING
    axes.set_facecolor(MISSING)  # what has no value is not painted
    painted = colours.with_extremes(bad=(0, 0, 0, 0))
    axes.imshow(
        np.ma.masked_invalid(shown),
        cmap=painted,
        vmin=low,
        vmax=high,
        interpolation="nearest",
        aspect="equal",
    )
    axes.set_xlabel("attended to")
    axes.set_ylabel("attends")
    is_switch = colours is SEQUENTIAL and bool(np.isin(shown, (0.0, 1.0)).all())
    ramp = np.linspace(high, low, 2 if is_switch else 256)[:, None]
    extent = (0.0, 1.0, low, high)
    bar.imshow(
        ramp, cmap=colours, vmin=low, vmax=high, extent=extent, aspect="auto", interpolation="none"
    )
    bar.yaxis.tick_right()
    bar.tick_params(length=0, pad=3)
    bar.set_xticks([])
    if is_switch:
        bar.set_yticks((0.25, 0.75), ("closed", "open"))
    for one in (axes, bar):
        one.spines[:].set_visible(False)


def _bars(
    axes: Axes, names: list[str], values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    place = np.arange(len(names))
    axes.barh(place, np.ones(len(names)), color=MISSING, height=0.6)
    axes.barh(place, values, color=SERIES[0], height=0.6)
    axes.hlines(place, low, high, color=INK, linewidth=1.5)
    for y, value in zip(place, values, strict=True):
        axes.text(1.02, float(y), f"{value:.2f}", va="center", color=MUTED)
    axes.set_yticks(place, names)
    axes.set_xlim(0, 1.15)
    axes.set_xticks([0, 0.5, 1])
    axes.invert_yaxis()


def _is_soft(study: Study) -> bool:
    return bool(entry_of(study.record, "learned_masks", "options", "is_soft"))


def part(study: Study) -> Part | None:
    table = study.tables.get("learned_masks")
    if table is None or not len(table):
        return None
    metric = metric_name(study, "learned_masks")
    columns: Columns = {
        "aim": text_column("aim", 40),
        "seed": lambda row: integer_cell(row["seed"]),
        **({"forbidden share": number_column("sparsity")} if "sparsity" in table else {}),
        metric: METRIC,
        "change": METRIC_CHANGE,
        "change of loss": LOSS_CHANGE,
    }
    splits = entry_of(study.record, "learned_masks", "splits") or ["one split", "another"]
    frozen = entry_of(study.record, "learned_masks", "options", "frozen")
    note = (
        f"Masks are reported on {plain(splits[1], 30)}: {metric}, its change and that of the loss against the model "
        "without a mask, example by example, with 95 % intervals. "
        + (
            "Only the mask was trained."
            if frozen
            else "The weights were trained with the mask: a change is of both."
        )
    )
    rows = rows_of(table.to_dict("records"), columns)
    heading, figures = "Which positions matter", ("learned-mask",)
    return Part("learned-masks", heading, note, tuple(columns), rows, figures=figures, words={0})


def findings(study: Study) -> Iterator[Finding]:
    """The sparsest mask that was learned."""
    table = study.tables.get("learned_masks")
    if table is None or not len(table):
        return
    rows = table.nlargest(1, "sparsity") if "sparsity" in table else table
    row = rows.to_dict("records")[0]
    share = f" forbids {finite(row['sparsity']):.0%} of attention" if "sparsity" in row else ""
    change = change_sentence(study, "learned_masks", row, examples_of(study, "learned_masks"))
    sentence = f"The learned mask {plain(row['aim'], 40)}{share}: {change}"
    yield Finding("", sentence, (), kind="learned")


SECTION = Section(
    figures={26: LearnedMaskMap},
    parts={40: part},
    findings={160: findings},
    facts={80: fact_of_task("learned_masks", "which positions need to attend to which for")},
)
