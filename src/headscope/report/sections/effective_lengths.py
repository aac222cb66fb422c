"""Correlation of effective attention with raw attention, by length of the text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headscope.report.drawing.palette import MUTED, RULE
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import SEQUENTIAL
from headscope.report.section import Section, needs_table
from headscope.report.study_access import entry_of, model_name, values_for
from headscope.report.table_cells import Part, rows_by_layer
from headscope.report.text import plain
from headscope.statistics.effective_lengths import UP_TO

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

FEWEST_LENGTHS = 4  # bins, below which there is no curve to see
PANELS = Panels(wide=4.2, tall=2.3, left=0.7, right=0.5, bottom=0.55, above=0.45, gap_x=0.5)


class EffectiveLengthsFigure(StudyFigure):
    """A panel for each stack, a line for each layer."""

    name = "effective-lengths"
    table = "effective_lengths"
    title = "Correlation of effective and raw attention, by length of the text"
    caption = (
        "Pearson's correlation of the two maps, averaged over the heads of a layer, by the length of the text; bars "
        "are 95 % intervals over texts. In texts with no more tokens than the width of a head, all attention is "
        "effective. "
    )

    @classmethod
    def for_study(cls, study: Study) -> Iterable[EffectiveLengthsFigure]:
        figure = cls()
        figure.caption += lengths_covered(study)
        return [figure]

    def applies(self, study: Study) -> bool:
        table = study.tables.get(self.table)
        return table is not None and table["up_to"].nunique() > 1

    def draw(self, study: Study) -> Figure:
        """A panel for each stack, a line for each layer; a rule at the heads' width, from which the two can differ."""
        stacks = list(study.tables[self.table].groupby("stack", sort=False))
        with PANELS.open(self.title, model_name(study), 1, len(stacks)) as sheet:
            for column, (stack, table) in enumerate(stacks):
                ax = sheet.add_panel(0, column)
                _draw_lengths(ax, table, width_of_heads(study, str(stack)))
                if len(stacks) > 1:
                    ax.set_title(plain(stack, 20), loc="left", fontweight="bold", pad=14)
                if not column:
                    ax.set_ylabel("correlation")
            return sheet.figure


def _draw_lengths(ax: Axes, table: pd.DataFrame, width: int | None) -> None:
    """Lengths on a logarithmic axis."""
    lengths = sorted({int(length) for length in table["up_to"]})
    layers = sorted(set(table["layer"]))
    ax.set_xscale("log")
    for i, layer in enumerate(layers):
        rows = table[table["layer"] == layer].sort_values("up_to")
        colour = SEQUENTIAL(0.2 + 0.8 * i / max(len(layers) - 1, 1))
        ax.vlines(rows["up_to"], rows["low"], rows["high"], color=colour, linewidth=1.0, alpha=0.5)
        line: dict[str, Any] = {"color": colour, "markersize": 3, "linewidth": 1.2}
        ax.plot(rows["up_to"], rows["value"], "o-", label=f"layer {layer}", **line)
    ends = [*lengths, width] if width else lengths
    ax.set_xlim(min(ends) / 1.15, max(ends) * 1.15)
    ax.set_xticks(_apart(lengths, max(ends) / min(ends)), minor=False)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.set_xticks([], minor=True)
    ax.set_xlabel("tokens, up to (log scale)")
    ax.set_ylim(min(0.0, float(table["value"].min())), 1.02)
    ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    ax.legend(frameon=False, fontsize=6.5, ncols=2 if len(layers) > 6 else 1)
    if width:
        ax.axvline(width, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        side = "left" if width == min(ends) else "right" if width == max(ends) else "center"
        text: dict[str, Any] = {"ha": side, "va": "bottom", "fontsize": 7}
        above = ax.get_xaxis_transform()
        ax.text(width, 1.02, f"width of a head: {width}", transform=above, **text)


def _apart(lengths: list[int], span: float) -> list[int]:
    """The lengths whose labels do not touch, from the longest down."""
    labelled = lengths[-1:]
    for length in reversed(lengths[:-1]):
        if labelled[0] / length > span ** (1 / 14):
            labelled = [length, *labelled]
    return labelled


def lengths_covered(study: Study) -> str:
    """The range of lengths and how to see others, if the texts fill too few bins for a curve; else nothing."""
    table = study.tables.get("effective_lengths")
    bins = [] if table is None else sorted({int(length) for length in table["up_to"]})
    if not bins or len(bins) >= FEWEST_LENGTHS:
        return ""
    shortest = max((length for length in UP_TO if length < bins[0]), default=0) + 1
    return (
        f"These texts have only {shortest} to {bins[-1]} tokens; for other lengths, run "
        "examples/effective_by_length.py."
    )


def width_of_heads(study: Study, stack: str) -> int | None:
    """As in the run record; in an older study it is the largest rank of the values."""
    width = entry_of(study.record, "lenses", "effective", "width", stack)
    if isinstance(width, int):
        return width
    ranks = values_for(study, "rank@effective", stack)["value"]
    return round(float(ranks.max())) if len(ranks) else None


@needs_table("effective_lengths")
def part(study: Study, table: pd.DataFrame) -> Part:
    lengths = sorted(set(table["up_to"]))
    rows = rows_by_layer(study, table, "up_to", lengths)
    note = (
        "Pearson's correlation of effective attention with the raw weights, averaged over the heads of a layer, for "
        "texts up to the length in tokens in the heading. Longer texts may differ in more than their length, so a "
        "decrease is not due to length alone."
    )
    if len(lengths) == 1:  # there is no figure whose caption says it
        note += f" {lengths_covered(study)}"
    headings = ("layer", *(f"≤ {length}" for length in lengths))
    heading = "Effective attention compared with raw attention, by length"
    source = ("effective_lengths.csv", ("effective-lengths",))
    return Part("lengths", heading, note, headings, rows, *source)


SECTION = Section(figures={62: EffectiveLengthsFigure}, parts={160: part})
