"""Share of other tokens in the output of each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.report.drawing.lines import Line, Lines, draw_lines, points_of
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.section import Section, needs_table
from headscope.report.study_access import model_name
from headscope.report.table_cells import Part, rows_by_layer
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

FORMS = {  # of mixing.csv, in Kobayashi's order and words
    "weight": "weights",
    "norm": "norm",
    "weight-residual": "weights + residual",
    "norm-residual": "norm + residual",
    "norm-layernorm": "norm + residual + LayerNorm",
}


class MixingFigure(StudyFigure):
    """A panel for each stack, a line for each form of mixing."""

    name = table = "mixing"
    title = "How much of a token comes from other tokens, by layer"
    caption = (
        "The share of a token's state that comes from other tokens, computed in several ways: from attention weights "
        "alone, from the norms of the value vectors, and with the residual connection and the LayerNorm included."
    )

    def draw(self, study: Study) -> Figure:
        panels = []
        for stack, table in study.tables["mixing"].groupby("stack", sort=False):
            lines = {
                label: Line(points_of(table[table["form"] == form]))
                for form, label in forms_of(table).items()
            }
            panels.append(Lines(plain(stack, 20), "share of other tokens", lines))
        return draw_lines([panels], self.title, model_name(study))


def forms_of(table: pd.DataFrame) -> dict[str, str]:
    """The forms in a table with their labels, in Kobayashi's order; forms without a label come last."""
    forms = dict.fromkeys(table["form"])
    ordered = [*(form for form in FORMS if form in forms), *forms]
    return {form: FORMS.get(form, form) for form in ordered}


@needs_table("mixing")
def part(study: Study, table: pd.DataFrame) -> Part:
    forms = forms_of(table)
    rows = rows_by_layer(study, table, "form", list(forms))
    note = (
        "The share of a token's state in a layer that comes from other tokens: from attention weights alone, from the "
        "norms of the value vectors, with the residual connection, and after the LayerNorm if there is one."
    )
    columns = ("layer", *forms.values())
    return Part("mixing", "How much each layer mixes tokens", note, columns, rows)


SECTION = Section(figures={63: MixingFigure}, parts={170: part})
