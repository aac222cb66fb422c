"""Relevance by layer: the parts that enter, pass through heads, come from biases, and are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.report.drawing.lines import Line, Lines, draw_lines, points_of
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.section import Section, needs_table
from headscope.report.study_access import entry_of, model_name
from headscope.report.table_cells import Part, rows_by_layer
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

TABLE = "relevance_layers"
PANELS = {
    "the states": {"enters": "enters the layer"},  # what leaves it enters the next one
    "through attention": {
        "heads": "heads",
        "cross-heads": "heads of cross attention",
        "source": "to the source",
    },
    "not from the input": {"biases": "biases", "lost": "lost"},
}


class RelevanceLayers(StudyFigure):
    """A row of panels for each stack, a line for each part."""

    table = TABLE
    name = "relevance-layers"
    title = "Where relevance goes, by layer"
    caption = (
        "All values are fractions of the prediction. Layer −1 is before the first layer (embeddings), the last one is "
        "after all layers. The relevance that leaves a layer is the relevance that enters it, plus the part of biases "
        "and, in a decoder, of the source, minus a loss. The loss is rounding under Voita's rules, and the part that "
        "the softmax drops under AttnLRP's rules."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables[TABLE]
        lines_of = {
            key: Line(points_of(rows.sort_values("layer")))
            for key, rows in table.groupby(["stack", "part"], sort=False)
        }
        stacks = list(dict.fromkeys(table["stack"]))
        rows = []
        for stack in stacks:
            panels = []
            for heading, parts in PANELS.items():
                keys = {label: (stack, part) for part, label in parts.items()}
                lines = {label: lines_of[key] for label, key in keys.items() if key in lines_of}
                title = heading if len(stacks) == 1 else f"{plain(stack, 12)}: {heading}"
                panels += [Lines(title, "fraction of the prediction", lines)] if lines else []
            rows.append(panels)
        rules = entry_of(study.record, "importance", "rules")
        subtitle = model_name(study) + (f", rules of {plain(rules, 20)}" if rules else "")
        return draw_lines(rows, self.title, subtitle)


@needs_table(TABLE)
def part(study: Study, table: pd.DataFrame) -> Part:
    """A row for each stack and layer, from the embeddings to the model's head."""
    parts = [str(part) for part in dict.fromkeys(table["part"])]
    rows = rows_by_layer(study, table, "part", parts)
    rows.sort(key=lambda row: float(row[0].key or 0))  # by stack, then by layer
    note = (
        "All values are fractions of the prediction. The relevance that leaves a layer is the relevance that enters "
        "it, plus the part of biases and of the source, minus a loss. Heads: the part that came through attention. "
        "Layer −1 is the embeddings, the last one is after all layers."
    )
    columns, source = ("layer", *parts), ("relevance_layers.csv", ("relevance-layers",))
    return Part("relevance", "Where relevance goes", note, columns, rows, *source)


SECTION = Section(figures={65: RelevanceLayers}, parts={190: part})
