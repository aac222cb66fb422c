"""Agreement of importance scores with exact ablation, head by head and as a correlation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.glossary import DEFINITIONS
from headscope.report.drawing.palette import INK, MUTED, RULE, SERIES
from headscope.report.drawing.sheet import Panels, open_sheet
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.drawing.style import (
    SEQUENTIAL,
    annotate,
    draw_interval,
    draw_legend_below,
    draw_rules,
    whole_numbers,
    write_above,
)
from headscope.report.finding import Finding, ceiling_of, noise_warning, read_estimate, short_number
from headscope.report.scale import Scale, title_of
from headscope.report.section import Section, needs_table
from headscope.report.sections.ablation import task_of
from headscope.report.study_access import grid_of, model_name, records_of, shape_of, stacks_with
from headscope.report.table_cells import (
    Cell,
    Columns,
    Part,
    interval_column,
    number_cell,
    number_column,
)
from headscope.report.text import plain
from headscope.tasks.metrics import spearman

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

TABLE = "agreement"
REVERSED = ("entropy",)  # a smaller value means a more important head
MARKERS = ("o", "^", "s", "D")  # by stack
COLUMNS, BOTTOM, BOTTOM_WITH_LEGEND = 5, 0.62, 0.82
PANELS = Panels(
    wide=1.45, tall=1.45, left=0.62, right=0.95, bottom=BOTTOM, above=0.42, gap_x=0.5, gap_y=0.72
)
MOST_DOTS = (
    4000  # with more dots the figure is a raster image, because a vector graphic would be large
)
WIDTH, LEFT, RIGHT, ROW = 6.6, 1.6, 1.2, 0.27


class Scatter(StudyFigure):
    """A panel for each importance score: a dot for each head, exact ablation across, the score up."""

    name = "agreement-heads"
    title = "Importance scores against ablation"
    caption = (
        "Each dot is a head; its colour is its layer. The x axis is the change of loss when the head is ablated, the "
        "y axis an importance score that is faster to compute. The axis of the entropy is inverted, because diffuse "
        "heads are expected to matter less. ρ is Spearman's correlation over heads."
    )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[Scatter]:
        figure = cls()
        dots = sum(study.heads["statistic"] == LOSS) * len(cheap_importances(study))
        figure.is_raster = dots > MOST_DOTS
        return [figure]

    def applies(self, study: Study) -> bool:
        return bool(cheap_importances(study)) and _can_rank(study)

    def source(self, study: Study) -> DataSource:
        return DataSource("heads", (LOSS, *cheap_importances(study)))

    def draw(self, study: Study) -> Figure:
        names = cheap_importances(study)
        stacks = stacks_with(study, LOSS)
        layers = max(shape_of(study, stack)[0] for stack in stacks)
        columns, rows = min(COLUMNS, len(names)), -(-len(names) // COLUMNS)
        exact = {stack: grid_of(study, LOSS, stack) for stack in stacks}
        subtitle = f"{model_name(study)}, {task_of(study)} · a dot is a head · x axis: change of loss by ablation"
        panels = replace(PANELS, bottom=BOTTOM_WITH_LEGEND) if len(stacks) > 1 else PANELS
        with panels.open(self.title, subtitle, rows, columns) as sheet:
            for i, name in enumerate(names):
                ax = sheet.add_panel(*divmod(i, COLUMNS))
                cheap = {stack: grid_of(study, name, stack) for stack in stacks}
                _draw_panel(ax, exact, cheap, layers)
                correlation = correlation_of(study, name)
                ax.set_title(plain(name, 20), fontweight="bold", pad=15)
                if np.isfinite(correlation):
                    text = f"ρ {correlation:.2f}".replace("-", "−")
                    fraction = {"xycoords": "axes fraction", "va": "bottom"}
                    annotate(ax, text, (0, 1), (0, 4), fontsize=7.5, color=MUTED, **fraction)
                if name in REVERSED:
                    ax.invert_yaxis()
                ax.set_xlabel("change of loss" if i + COLUMNS >= len(names) else "")
            scale = Scale("other", 0.0, float(max(layers - 1, 1)))
            bar = sheet.add_bar(sheet.width - panels.right + 0.22, panels.tall, scale, "layer")
            whole_numbers(bar.yaxis, 6)
            if len(stacks) > 1:
                draw_legend_below(sheet.figure)
            return sheet.figure


class Correlations(StudyFigure):
    """A row for each importance, the best first."""

    table = TABLE
    name = "agreement"
    title = "How well importance scores rank heads"
    caption = (
        "A dot is Spearman's correlation over heads between an importance score and exact ablation, with a 95 % "
        "bootstrap interval over examples. The dashed line is the noise ceiling: the correlation that the true "
        "importance scores would reach, given the noise of the ablation. A score from the same examples shares their "
        "noise and can be above the ceiling. On the right: how many of the least important heads are the same by both. "
        "“Random” is a control: one random score per head."
    )

    def applies(self, study: Study) -> bool:
        return bool(records_of(study, TABLE)) and _can_rank(study)

    def draw(self, study: Study) -> Figure:
        rows = _best_first(study.tables[TABLE]).to_dict("records")
        subtitle = f"{model_name(study)}, {task_of(study)} · Spearman's correlation with the exact change of loss"
        body = ROW * len(rows)
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.5) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            for y, row in enumerate(rows):
                _draw_correlation(ax, row, y)
            ceiling = ceiling_of(rows[0])
            ax.axvline(ceiling, color=SERIES[1], linewidth=1.3, linestyle=(0, (4, 2)), zorder=2)
            write_above(ax, ceiling, f"ceiling {ceiling:.2f}")
            ends = [float(row[name]) for row in rows for name in ("correlation", "low")]
            least = min([0.0, *ends])
            ax.set(xlim=(least - 0.05, 1.02), ylim=(len(rows) - 0.5, -0.5), xlabel="correlation")
            ax.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
            ax.set_yticks(range(len(rows)), [plain(row["importance"], 24) for row in rows])
            draw_rules(ax, "x")
            ax.tick_params(axis="y", length=0)
            bottom, chance = int(rows[0]["bottom"]), float(rows[0]["by_chance"])
            heading = f"of the {bottom} least\n(chance: {chance:.1f})"
            _write_beside(ax, heading, -0.62, va="bottom", color=MUTED)
            return sheet.figure


def cheap_importances(study: Study) -> list[str]:
    """The importance scores that can be compared with exact ablation.

    These are the scores of agreement.csv. Without this table, only scores that `analyze` cannot write are used: an
    entropy, for example, may have been measured on another corpus.
    """
    if not stacks_with(study, LOSS):
        return []
    names = [str(row["importance"]) for row in records_of(study, TABLE)]
    names = names or [name for name in DEFINITIONS if name not in (LOSS, METRIC)]
    return [name for name in names if stacks_with(study, name)]


def _can_rank(study: Study) -> bool:
    """Whether exact ablation is precise enough to rank heads; assumed if its ceiling is unknown."""
    rows = records_of(study, TABLE)
    return not rows or not noise_warning(rows[0])


def correlation_of(study: Study, name: str) -> float:
    """The correlation from agreement.csv; without this table, it is computed over the heads of the study."""
    if rows := records_of(study, TABLE):
        return next(float(row["correlation"]) for row in rows if row["importance"] == name)
    pairs = study.heads[study.heads["statistic"].isin((LOSS, name))]
    both = pairs.pivot(index=["stack", "layer", "head"], columns="statistic", values="value")
    both = both.dropna()
    return (-1 if name in REVERSED else 1) * spearman(both[name].to_numpy(), both[LOSS].to_numpy())


def _best_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("correlation", ascending=False, kind="stable")


def _draw_panel(
    ax: Axes,
    exact: dict[str, NDArray[np.float64]],
    cheap: dict[str, NDArray[np.float64]],
    layers: int,
) -> None:
    # Dots have an edge, because pale dots would be lost on a pale page and dark ones on a dark page.
    dots: dict[str, Any] = {"s": 17, "edgecolors": MUTED, "linewidths": 0.6, "zorder": 3}
    for i, (stack, x) in enumerate(exact.items()):
        is_finite = np.isfinite(x) & np.isfinite(cheap[stack])
        layer, _ = np.nonzero(is_finite)
        marker, colours = MARKERS[i % len(MARKERS)], SEQUENTIAL(layer / max(layers - 1, 1))
        names: dict[str, Any] = {"label": plain(stack, 20), "marker": marker, "c": colours}
        ax.scatter(x[is_finite], cheap[stack][is_finite], **names, **dots)
    ax.axvline(0, color=RULE, linewidth=0.8, zorder=1)
    ax.tick_params(colors=RULE, labelcolor=MUTED, labelsize=6.5, pad=2)


def _draw_correlation(ax: Axes, row: dict[Any, Any], y: int) -> None:
    colour = MUTED if row["importance"] == "random" else SERIES[0]
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        draw_interval(ax, row["low"], row["high"], y, colour)
    if pd.notna(row["correlation"]):
        ax.plot(row["correlation"], y, "o", color=colour, markersize=5.5, zorder=4)
    _write_beside(ax, f"{int(row['overlap'])}", y, va="center", color=INK)


def _write_beside(ax: Axes, text: str, y: float, *, va: str, color: str) -> None:
    """Write text in the column at the right of the panel."""
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
    annotate(ax, text, (1, y), (36, 0), ha="center", va=va, fontsize=7.5, color=color, **where)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "score": lambda row: Cell(
            plain(title_of(str(row["importance"])), 60), plain(row["importance"], 30)
        ),
        "correlation [interval over examples]": interval_column("correlation"),
        "noise ceiling": lambda row: number_cell(ceiling_of(row)),
        "overlap": lambda row: Cell(
            f"{int(row['overlap'])} of {int(row['bottom'])}", float(row["overlap"])
        ),
        "by chance": number_column("by_chance", decimals=1),
        "rank spread": number_column("rank_spread", decimals=1),
    }
    note = (
        "The correlation is Spearman's, over heads, between a score and exact ablation, with a bootstrap interval "
        "over examples. Resampling adds noise and noise lowers a correlation, so the interval is often too low; it "
        "can even exclude the correlation. The noise ceiling is the correlation that the true importance scores would "
        "reach, given the noise of the ablation (–: the ablation is only noise). A score from the same examples "
        "shares their noise and can be above the ceiling. The overlap is the number of least important heads that "
        "score and ablation have in common; “by chance” is the number expected for a random score. The rank spread is "
        "the mean width of the 95 % interval of a head's rank (–: the score has no interval)."
    )
    noisy = noise_warning(table.to_dict("records")[0])
    lead = (
        f"There is no figure of these scores, because there are too few data: {noisy}."
        if noisy
        else ""
    )
    heading = "Importance scores against exact ablation"
    return Part.of("agreement", heading, note, columns, _best_first(table), words={0}, lead=lead)


def findings(study: Study) -> Iterator[Finding]:
    """The importance score that ranks heads most like exact ablation."""
    rows = [
        row
        for row in records_of(study, TABLE)
        if row["importance"] != "random" and pd.notna(row["correlation"])
    ]
    if not rows:
        yield from noisy_ranks(study)
        return
    best = max(rows, key=lambda row: float(row["correlation"]))
    if noisy := noise_warning(best):
        sentence = "There are too few examples to tell how well importance scores rank heads"
        yield Finding(
            "",
            sentence,
            (),
            kind="importance",
            is_clear=False,
            topic="scores",
            after=noisy,
        )
        return
    estimate, ceiling = read_estimate(best, ("correlation", "low", "high")), ceiling_of(best)
    titles = [
        plain(title_of(str(row["importance"])), 60)
        for row in rows
        if short_number(row["correlation"]) == short_number(best["correlation"])
    ]
    names = " and ".join([", ".join(titles[:-1]), titles[-1]]) if len(titles) > 1 else titles[0]
    verb = "ranks" if len(titles) == 1 else "rank"
    sentence = f"“{names}” {verb} heads most like ablation: the rank correlation is {short_number(estimate.value)}"
    is_noise = estimate.value > ceiling
    after = (
        f"{estimate.text()} (Spearman); noise ceiling: {short_number(ceiling)}; score and ablation were measured on "
        f"the same {int(best['count'])} examples and share their noise"
    )
    after += ", so that the correlation is above the ceiling; use more examples" if is_noise else ""
    evidence = estimate.evidence(0.0)
    evidence["is_clear"] &= not is_noise
    yield Finding("", sentence, (), kind="importance", topic="scores", after=after, **evidence)


def noisy_ranks(study: Study) -> Iterator[Finding]:
    """A warning for each stack in which exact ablation is too noisy to rank heads."""
    rows = records_of(study, "ceilings")
    for row in rows:
        if noisy := noise_warning(row):
            stack = f" of the {plain(row['stack'])} stack" if len(rows) > 1 else ""
            sentence = f"Ablation is too noisy to rank the heads{stack}"
            yield Finding(
                "",
                sentence,
                (),
                kind="importance",
                is_clear=False,
                topic="scores",
                after=noisy,
            )


SECTION = Section(
    figures={49: Correlations, 50: Scatter}, parts={80: part}, findings={50: findings}
)
