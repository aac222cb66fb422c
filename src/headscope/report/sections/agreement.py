"""How good are the cheap importances? Each against exact removal, head by head and as a correlation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.glossary import DEFINITIONS
from headscope.report.drawing.palette import INK, MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.drawing.style import (
    SEQUENTIAL,
    draw_bar,
    draw_legend_below,
    draw_rules,
    headed,
    heading_height,
    style,
    whole_numbers,
)
from headscope.report.finding import (
    Finding,
    ceiling_of,
    excludes,
    read_measured,
    short_number,
    strength_of,
    too_noisy,
)
from headscope.report.scale import Scale
from headscope.report.section import Section
from headscope.report.sections.ablation import MATTER, task_of
from headscope.report.study_access import grid_of, model_name, shape_of, stacks_with
from headscope.report.table_cells import (
    Cell,
    Columns,
    Part,
    interval_column,
    number,
    number_column,
    rows_of,
    text_column,
)
from headscope.report.text import plain
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

TABLE = "agreement"
TURNED = ("entropy",)  # the smaller, the more important
MARKERS = ("o", "^", "s", "D")  # by stack
COLUMNS, LEFT, RIGHT, BOTTOM = 5, 0.62, 0.95, 0.62
PANEL, GAP_X, GAP_Y = 1.45, 0.5, 0.72
MOST_DOTS = 4000  # beyond, vectors are heavy
DOTS_WIDTH, DOTS_LEFT, DOTS_RIGHT, ROW = 6.6, 1.6, 1.2, 0.27


class Scatter(StudyFigure):
    """A panel for each cheap importance: a dot a head, exact removal across, the cheap one up."""

    name = "agreement-heads"
    title = "Cheap importances against exact removal"
    caption = (
        "Each dot is a head; its colour is its layer. Across: the exact change of loss when it is removed. Up: what a "
        "cheap importance says of it, entropy upside down, since a head that spreads its attention is held for less "
        "important. ρ is Spearman's correlation over heads."
    )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Scatter]:
        figure = cls()
        dots = sum(study.heads["statistic"] == LOSS) * len(cheap_ones(study))
        figure.is_raster = dots > MOST_DOTS
        return [figure]

    def applies(self, study: Study) -> bool:
        return bool(cheap_ones(study)) and is_ranked(study)

    def source(self, study: Study) -> DataSource:
        return DataSource("heads", (LOSS, *cheap_ones(study)))

    def draw(self, study: Study) -> Figure:
        names = cheap_ones(study)
        stacks = stacks_with(study, LOSS)
        layers = max(shape_of(study, stack)[0] for stack in stacks)
        columns, rows = min(COLUMNS, len(names)), -(-len(names) // COLUMNS)
        exact = {stack: grid_of(study, LOSS, stack) for stack in stacks}
        subtitle = f"{model_name(study)}, {task_of(study)} · a dot is a head · across: exact change of loss"
        with style():
            width = max(LEFT + columns * (PANEL + GAP_X) - GAP_X + RIGHT, 4.2)
            top = heading_height(width, subtitle) + 0.42
            height = top + rows * (PANEL + GAP_Y) - GAP_Y + BOTTOM + (0.2 if len(stacks) > 1 else 0)
            fig = headed(width, height, self.title, subtitle)
            for place, name in enumerate(names):
                row, column = divmod(place, COLUMNS)
                x, y = LEFT + column * (PANEL + GAP_X), height - top - row * (PANEL + GAP_Y) - PANEL
                ax = fig.add_axes((x / width, y / height, PANEL / width, PANEL / height))
                cheap = {stack: grid_of(study, name, stack) for stack in stacks}
                _draw_panel(ax, exact, cheap, layers)
                correlation = correlation_of(study, name)
                ax.set_title(plain(name, 20), fontweight="bold", pad=15)
                if np.isfinite(correlation):
                    _write_above(ax, f"ρ {correlation:.2f}".replace("-", "−"))
                if name in TURNED:
                    ax.invert_yaxis()
                ax.set_xlabel("change of loss" if place + COLUMNS >= len(names) else "")
            scale = Scale("other", 0.0, float(max(layers - 1, 1)))
            beside = (width - RIGHT + 0.22) / width
            bar = draw_bar(
                fig,
                (beside, (height - top - PANEL) / height, 0.11 / width, PANEL / height),
                scale,
                "layer",
            )
            whole_numbers(bar.yaxis, 6)
            if len(stacks) > 1:
                handles, labels = fig.axes[0].get_legend_handles_labels()
                draw_legend_below(fig, handles, labels, len(stacks))
            return fig


class Correlations(StudyFigure):
    """A line for each importance, the best first."""

    table = TABLE
    name = "agreement"
    title = "How well cheap importances rank heads"
    caption = (
        "Spearman's correlation over heads with exact removal, and its 95 % interval over examples, which are "
        "resampled, for these heads: that of chance (random) is one draw. "
        "The broken line is the ceiling: what the true importances would reach, given how noisy the exact ones are; "
        "an importance of the same examples shares their noise and can lie above it. "
        "At the right, how many of the least important heads are the same ones; random, where it was "
        "asked for, is the control."
    )

    def applies(self, study: Study) -> bool:
        return bool(len(_table(study))) and is_ranked(study)

    def draw(self, study: Study) -> Figure:
        rows = (
            _table(study)
            .sort_values("correlation", ascending=False, kind="stable")
            .to_dict("records")
        )
        subtitle = f"{model_name(study)}, {task_of(study)} · Spearman's correlation with the exact change of loss"
        with style():
            top, body = heading_height(DOTS_WIDTH, subtitle) + 0.5, ROW * len(rows)
            height = top + body + BOTTOM
            fig = headed(DOTS_WIDTH, height, self.title, subtitle)
            across = (DOTS_WIDTH - DOTS_LEFT - DOTS_RIGHT) / DOTS_WIDTH
            ax = fig.add_axes((DOTS_LEFT / DOTS_WIDTH, BOTTOM / height, across, body / height))
            for place, row in enumerate(rows):
                _draw_correlation(ax, row, place)
            _draw_ceiling(ax, ceiling_of(rows[0]))
            least = min([0.0, *(float(row[one]) for row in rows for one in ("correlation", "low"))])
            ax.set(xlim=(least - 0.05, 1.02), ylim=(len(rows) - 0.5, -0.5), xlabel="correlation")
            ax.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
            ax.set_yticks(range(len(rows)), [plain(row["importance"], 24) for row in rows])
            draw_rules(ax, "x")
            ax.tick_params(axis="y", length=0)
            heading = (
                f"of the {int(rows[0]['bottom'])} least\n(chance {float(rows[0]['by_chance']):.1f})"
            )
            _write_beside(ax, heading, -0.62, va="bottom", color=MUTED)
            return fig


def cheap_ones(study: Study) -> list[str]:
    """The importances that can be set against exact removal.

    Those of agreement.csv; without it those that only `importance` makes: an entropy might be that of another corpus.
    """
    if not stacks_with(study, LOSS):
        return []
    table = _table(study)
    known = [name for name in DEFINITIONS if name not in (LOSS, METRIC)]
    named = [str(name) for name in table["importance"]] if len(table) else known
    return [name for name in named if stacks_with(study, name)]


def is_ranked(study: Study) -> bool:
    """Whether exact removal is clear enough to rank heads by; if its ceiling is unknown, it is taken to be."""
    table = _table(study)
    return not len(table) or not too_noisy(table.to_dict("records")[0])


def correlation_of(study: Study, name: str) -> float:
    """As agreement.csv has it; without it, over the heads of the study."""
    table = _table(study)
    if len(table):
        return float(table.set_index("importance")["correlation"][name])
    pairs = study.heads[study.heads["statistic"].isin((LOSS, name))]
    both = pairs.pivot(
        index=["stack", "layer", "head"], columns="statistic", values="value"
    ).dropna()
    return (-1 if name in TURNED else 1) * spearman(both[name].to_numpy(), both[LOSS].to_numpy())


def _table(study: Study) -> pd.DataFrame:
    table = study.tables.get(TABLE)
    return pd.DataFrame() if table is None or not len(table) else table


def _draw_panel(
    ax: Axes,
    exact: dict[str, NDArray[np.float64]],
    cheap: dict[str, NDArray[np.float64]],
    layers: int,
) -> None:
    for place, stack in enumerate(exact):
        layer = np.broadcast_to(np.arange(len(exact[stack]))[:, None], exact[stack].shape)
        there = np.isfinite(exact[stack]) & np.isfinite(cheap[stack])
        ax.scatter(
            exact[stack][there],
            cheap[stack][there],
            s=17,
            marker=MARKERS[place % len(MARKERS)],
            c=SEQUENTIAL(layer[there] / max(layers - 1, 1)),
            edgecolors=MUTED,  # pale dots would be lost on a pale page, dark ones on a dark page
            linewidths=0.6,
            label=plain(stack, 20),
            zorder=3,
        )
    ax.axvline(0, color=RULE, linewidth=0.8, zorder=1)
    ax.tick_params(colors=RULE, labelcolor=MUTED, labelsize=6.5, pad=2)


def _write_above(ax: Axes, text: str) -> None:
    """Between a panel and its title."""
    ax.annotate(
        text,
        (0, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        fontsize=7.5,
        color=MUTED,
    )


def _draw_correlation(ax: Axes, row: dict[Any, Any], place: int) -> None:
    colour = MUTED if row["importance"] == "random" else SERIES[0]
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        ax.plot(
            [row["low"], row["high"]], [place] * 2, color=colour, linewidth=2, alpha=0.45, zorder=3
        )
    if pd.notna(row["correlation"]):
        ax.plot(row["correlation"], place, "o", color=colour, markersize=5.5, zorder=4)
    _write_beside(ax, f"{int(row['overlap'])}", place, va="center", color=INK)


def _draw_ceiling(ax: Axes, ceiling: float) -> None:
    ax.axvline(ceiling, color=SERIES[1], linewidth=1.3, linestyle=(0, (4, 2)), zorder=2)
    ax.annotate(
        f"ceiling {ceiling:.2f}",
        (ceiling, 1),
        (0, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7.5,
        color=INK,
    )


def _write_beside(ax: Axes, text: str, place: float, *, va: str, color: str) -> None:
    """In the column at the right of the panel."""
    ax.annotate(
        text,
        (1, place),
        (36, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="center",
        va=va,
        fontsize=7.5,
        color=color,
        annotation_clip=False,
    )


def part(study: Study) -> Part | None:
    table = study.tables.get("agreement")
    if table is None or not len(table):
        return None
    columns: Columns = {
        "importance": text_column("importance", 30),
        "correlation [interval over examples]": interval_column("correlation"),
        "ceiling": lambda row: number(ceiling_of(row)),
        "overlap": lambda row: Cell(
            f"{int(row['overlap'])} of {int(row['bottom'])}", float(row["overlap"])
        ),
        "by chance": number_column("by_chance", decimals=1),
        "rank spread": number_column("rank_spread", decimals=1),
    }
    ranked = table.sort_values("correlation", ascending=False, kind="stable")
    rows = rows_of(ranked.to_dict("records"), columns)
    note = (
        "How each cheap importance ranks heads against exact removal: Spearman's correlation over heads, with its "
        "interval over examples, which are resampled. Noise lowers a correlation and resampling adds noise, so the "
        "interval is often too low: read it as a spread, beside the ceiling. The ceiling is what the true importances "
        "would reach, given how noisy the exact ones are; an importance of the same examples shares their "
        "noise and can lie above it; "
        "– where the changes by removal are nothing but noise. "
        "Overlap: how many of the least important heads are the same ones, and what chance would give. Rank spread: "
        "the mean width of the 95 % interval of a head's rank (– where an importance is one number a head)."
    )
    noisy = too_noisy(table.to_dict("records")[0])
    lead = f"No ranking is drawn: {noisy}." if noisy else ""
    heading = f"{MATTER}: cheap importances"
    return Part("agreement", heading, note, tuple(columns), rows, words={0}, lead=lead)


def findings(study: Study) -> Iterator[Finding]:
    """The cheap importance that ranks heads most like exact removal."""
    table = study.tables.get("agreement")
    rows = (
        table[(table["importance"] != "random") & table["correlation"].notna()]
        if table is not None
        else None
    )
    if rows is None or not len(rows):
        yield from noisy_ranks(study)
        return
    best = rows.nlargest(1, "correlation").to_dict("records")[0]
    if noisy := too_noisy(best):
        sentence = f"How well cheap importances rank heads cannot be told: {noisy}"
        yield Finding("", sentence, (), kind="importance", is_clear=False, topic="cheap")
        return
    found, ceiling = read_measured(best, ("correlation", "low", "high")), ceiling_of(best)
    sentence = (
        f"Of the {len(rows)} cheap importances, {plain(best['importance'], 40)} ranks heads most like exact removal: "
        f"Spearman's correlation {found.text()}. Both were measured on the same {int(best['count'])} examples and "
        "share their noise"
    )
    is_noise = found.value > ceiling
    if is_noise:
        sentence += (
            f", and the true importances, which do not, would reach only {short_number(ceiling)}: what is above that "
            "is shared noise; take more examples"
        )
    else:
        sentence += f"; the true importances, which do not, would reach {short_number(ceiling)}"
    strength = strength_of(found.value, found.low, found.high, 0.0)
    is_clear = excludes(found, 0.0) and not is_noise
    yield Finding(
        "", sentence, (), kind="importance", is_clear=is_clear, strength=strength, topic="cheap"
    )


def noisy_ranks(study: Study) -> Iterator[Finding]:
    """That exact removal is too noisy to rank heads by, for each stack of which that is so."""
    table = study.tables.get("ceilings")
    rows = [] if table is None else table.to_dict("records")
    for row in rows:
        if noisy := too_noisy(row):
            where = f" of the {plain(row['stack'])} stack" if len(rows) > 1 else ""
            sentence = f"The order of the heads{where} by exact removal is unreliable: {noisy}"
            yield Finding("", sentence, (), kind="importance", is_clear=False, topic="cheap")


SECTION = Section(
    figures={49: Correlations, 50: Scatter},
    parts={80: part},
    findings={50: findings},
)
