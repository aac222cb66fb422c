"""Statistics through each lens, by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headscope.report.drawing.lines import Line, Lines, draw_lines, heading_of, points_of
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.section import Section
from headscope.report.study_access import (
    entry_of,
    model_name,
    stacks_of,
    stacks_with,
    statistics_of,
)
from headscope.report.table_cells import DECIMALS, Cell, Part, layer_cell, number_cell
from headscope.report.text import plain
from headscope.study.schema.names import RAW, StatisticName, through_lens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

DRAWN = {
    "cls": "classification token",
    "sep": "separators",
    "first": "first token",
    "punctuation": '"." and ","',
}
# Properties of a lens rather than of a layer, if they are the same in all layers.
ONLY_IF_VARIES = ("row-total", "rank")
LISTED = ("special", "cls", "sep", "punctuation", "confidence", "raw-correlation", *ONLY_IF_VARIES)


class LensShares(StudyFigure):
    """A row of panels for each stack, a panel for each kind of tokens, a line for each lens."""

    name = "lens-shares"
    title = "Attention to kinds of tokens, through each lens"
    caption = (
        "A line joins the means over the heads of each layer; bands are two standard errors over heads. Through the "
        "lens norm, a token's share is weighted by the length of its value vectors; through gradient, by the effect "
        "on the loss. If a share is below the raw share, attention to the token has less effect than its weight "
        "suggests. Shares of effective attention need not sum to 1."
    )

    def applies(self, study: Study) -> bool:
        return bool(lenses_of(study)) and bool(set(DRAWN) & set(study.heads["statistic"]))

    def source(self, study: Study) -> DataSource:
        """The masses that are drawn, through every lens."""
        stacks = stacks_of(study)
        masses = [mass for mass in DRAWN if any(_is_drawn(study, mass, stack) for stack in stacks)]
        names = [through_lens(mass, lens) for mass in masses for lens in lenses_of(study)]
        return DataSource("heads", tuple(names))

    def draw(self, study: Study) -> Figure:
        by_layer = study.heads.groupby(["stack", "layer", "statistic"], as_index=False)["value"]
        table = by_layer.agg(["mean", "sem"]).rename(columns={"mean": "value"})
        margin = 2 * table["sem"]
        table = table.assign(low=table["value"] - margin, high=table["value"] + margin)
        lines_of = {
            key: Line(points_of(of_key)) for key, of_key in table.groupby(["stack", "statistic"])
        }
        rows = []
        for stack in stacks_of(study):
            panels = []
            for mass, heading in DRAWN.items():
                names = {lens: (stack, through_lens(mass, lens)) for lens in lenses_of(study)}
                lines = {lens: lines_of[key] for lens, key in names.items() if key in lines_of}
                if lines and _is_drawn(study, mass, stack):
                    panels.append(Lines(heading_of(study, stack, heading), "share", lines))
            rows += [panels] if panels else []
        return draw_lines(rows, self.title, model_name(study))


def _is_drawn(study: Study, mass: str, stack: str) -> bool:
    """Not the first token if that is the classification token, which has a panel of its own."""
    return mass != "first" or stack not in stacks_with(study, "cls")


def lenses_of(study: Study) -> list[str]:
    """The lenses of the study's statistics, raw first; empty if there are no others."""
    lenses = dict.fromkeys(StatisticName.parse(name).lens for name in statistics_of(study))
    others = [lens for lens in lenses if lens]
    return [RAW, *others] if others else []


def part(study: Study) -> Part | None:
    """A block for each statistic with a row for each layer: the mean over its heads through each lens."""
    lenses = lenses_of(study)
    if not lenses:
        return None
    means = study.heads.groupby(["stack", "layer", "statistic"])["value"].mean().to_dict()
    stacks = stacks_of(study)
    layers = list(
        study.heads[["stack", "layer"]].drop_duplicates().itertuples(index=False, name=None)
    )
    layers.sort(key=lambda key: (stacks.index(key[0]), key[1]))
    rows = []
    for statistic in LISTED:
        names = [through_lens(statistic, lens) for lens in lenses]
        values = [[means.get((*layer, name), math.nan) for name in names] for layer in layers]
        if statistic in ONLY_IF_VARIES:
            values = _drop_constant(values)
        is_whole = all(value == round(value) for row in values for value in row if value == value)
        decimals = 0 if is_whole else DECIMALS
        for layer, row in zip(layers, values, strict=True):
            if not all(map(math.isnan, row)):
                cells = [Cell(statistic, statistic), layer_cell(study, *layer)]
                rows.append(cells + [number_cell(value, decimals=decimals) for value in row])
    note = (
        "Means over the heads of a layer, one block of rows per statistic. Effective attention is the part of "
        "attention that can change the output of a head; norm weights attention by the length of the value vectors; "
        "gradient weights it by its effect on the loss. "
        "Effective shares may be below 0 and need not sum to 1. Row sums (row-total) and ranks of values are shown "
        "only if they vary between layers; heads.csv has all. The table of all heads shows every statistic through "
        "every lens, such as entropy@norm. "
    )
    loss = entry_of(study.record, "lenses", "loss_means")
    notes = [f"The loss: {plain(loss, 300)}."] if loss else []
    for lens in lenses:
        counts = [entry_of(study.record, "lenses", lens, key) for key in ("short", "sequences")]
        if all(isinstance(count, int) for count in counts) and counts[0]:
            notes.append(
                f"{lens}: {counts[0]} of {counts[1]} maps of a layer are of texts no longer than a head is wide: "
                "all attention is effective there."
            )
    note += " ".join(notes)
    columns, source = ("statistic", "layer", *lenses), ("heads.csv", ("lens-",))
    return Part("lenses", "Other lenses", note, columns, rows, *source, frozenset({0}))


def _drop_constant(values: list[list[float]]) -> list[list[float]]:
    """[layer][lens], with NaN for a lens that has the same value, as written, in all layers."""
    texts = [{f"{value:.{DECIMALS}f}" for value in column} for column in zip(*values, strict=True)]
    return [
        [value if len(of_lens) > 1 else math.nan for value, of_lens in zip(row, texts, strict=True)]
        for row in values
    ]


SECTION = Section(figures={60: LensShares}, parts={120: part})
