"""What do other lenses show? Statistics through each lens, by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headscope.report.drawing.lines import Line, Lines, draw_lines, heading_of
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.section import Section
from headscope.report.study_access import entry_of, model_name, stacks_of, stacks_with
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
MASSES = (
    "special",
    "cls",
    "sep",
    "punctuation",
    "confidence",
    "raw-correlation",
    "row-total",
    "rank",
)
ONLY_IF_VARIES = (
    "row-total",
    "rank",
)  # they say something of a lens, not of a layer, where they are the same in all


class LensShares(StudyFigure):
    name = "lens-shares"
    title = "Attention to kinds of tokens, through each lens"
    caption = (
        "Means over the heads of a layer; bands are twice the standard error of that mean, by how heads differ. "
        "Through norm and gradient a token has the share of what its weights move, or would change the loss by: less "
        "than raw says that weight on it does less than weight on others. Effective attention need not sum to 1."
    )

    def applies(self, study: Study) -> bool:
        return bool(lenses_of(study)) and bool(set(DRAWN) & set(study.heads["statistic"]))

    def source(self, study: Study) -> DataSource:
        """The masses that are drawn, through every lens."""
        drawn = [
            mass for mass in DRAWN if any(_is_drawn(study, mass, one) for one in stacks_of(study))
        ]
        names = [through_lens(mass, lens) for mass in drawn for lens in lenses_of(study)]
        return DataSource("heads", tuple(names))

    def draw(self, study: Study) -> Figure:
        means = study.heads.groupby(["stack", "layer", "statistic"], as_index=False)["value"].agg(
            ["mean", "sem"]
        )
        rows = []
        for stack in stacks_of(study):
            panels = []
            for mass, heading in DRAWN.items():
                lines = {}
                for lens in lenses_of(study) if _is_drawn(study, mass, stack) else ():
                    name = through_lens(mass, lens)
                    here = means[(means["stack"] == stack) & (means["statistic"] == name)]
                    points = [
                        (layer, mean, mean - 2 * error, mean + 2 * error)
                        for layer, mean, error in here[["layer", "mean", "sem"]].itertuples(
                            index=False
                        )
                    ]
                    if points:
                        lines[lens] = Line(points)
                if lines:
                    panels.append(Lines(heading_of(study, stack, heading), "share", lines))
            rows += [panels] if panels else []
        return draw_lines(rows, self.title, model_name(study))


def _is_drawn(study: Study, mass: str, stack: str) -> bool:
    """Not the first token where that is the classification token, which has a panel of its own."""
    return mass != "first" or stack not in stacks_with(study, "cls")


def lenses_of(study: Study) -> list[str]:
    """The lenses that rows of the study were seen through, raw first."""
    names = map(str, dict.fromkeys(study.heads["statistic"]))
    lenses = dict.fromkeys(StatisticName.parse(name).lens for name in names)
    others = [lens for lens in lenses if lens]
    return [RAW, *others] if others else []


def part(study: Study) -> Part | None:
    """A block a statistic, in it a row a layer: the mean over its heads of what each lens says."""
    lenses = lenses_of(study)
    if not lenses:
        return None
    means = study.heads.groupby(["stack", "layer", "statistic"])["value"].mean().to_dict()
    layers = list(dict.fromkeys(study.heads[["stack", "layer"]].itertuples(index=False, name=None)))
    layers.sort(key=lambda one: (stacks_of(study).index(one[0]), one[1]))
    rows = []
    for statistic in MASSES:
        names = [through_lens(statistic, lens) for lens in lenses]
        of_layers = [[means.get((*place, name), math.nan) for name in names] for place in layers]
        if statistic in ONLY_IF_VARIES:
            of_layers = _varying(of_layers)
        known = [value for values in of_layers for value in values if not math.isnan(value)]
        decimals = 0 if all(value == round(value) for value in known) else DECIMALS
        rows += [
            [
                Cell(statistic, statistic),
                layer_cell(study, *place),
                *(number_cell(value, decimals=decimals) for value in values),
            ]
            for place, values in zip(layers, of_layers, strict=True)
            if not all(map(math.isnan, values))
        ]
    note = (
        "The mean over a layer's heads, one block for each statistic. Effective attention is what of it can change a "
        "head's output; norm weighs it by the length of the values it moves; gradient by what the loss would lose with "
        "it. Through effective attention shares may be below 0 and do not sum to 1. What rows sum to (row-total) and "
        "the rank of the values stand here only where they vary from layer to layer; heads.csv has all. The table of "
        "heads shows every statistic through every lens: choose one such as entropy@norm. "
    )
    note += _notes(study)
    columns = ("statistic", "layer", *lenses)
    return Part(
        "lenses", "Other lenses", note, columns, rows, "heads.csv", ("lens-",), frozenset({0})
    )


def _varying(of_layers: list[list[float]]) -> list[list[float]]:
    """[layer][lens]; a lens that says the same of all layers, as written, is left out (NaN)."""
    varies = [
        len({f"{value:.{DECIMALS}f}" for value in column}) > 1
        for column in zip(*of_layers, strict=True)
    ]
    return [
        [value if is_kept else math.nan for value, is_kept in zip(row, varies, strict=True)]
        for row in of_layers
    ]


def _notes(study: Study) -> str:
    """What the record says of the loss and of sequences that were too short."""
    notes = ""
    if entry_of(study.record, "lenses", "loss_means"):
        notes += f"The loss: {plain(entry_of(study.record, 'lenses', 'loss_means'), 300)}. "
    for lens in lenses_of(study):
        short, all_of = (
            entry_of(study.record, "lenses", lens, key) for key in ("short", "sequences")
        )
        if isinstance(short, int) and isinstance(all_of, int) and short:
            notes += (
                f"{lens}: {short} of {all_of} maps of a layer are of texts no longer than a head is wide, where all of "
                "attention is effective; there it is the raw one. "
            )
    return notes.strip()


SECTION = Section(figures={60: LensShares}, parts={120: part})
