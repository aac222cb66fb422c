"""Gradients of attention to separators and other sinks: whether that attention is a no-op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.analysis.separators import NAMES, SMALL, verdicts
from headscope.report.drawing.lines import Line, Lines, draw_lines, heading_of, points_of
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.finding import Finding
from headscope.report.section import Section, needs_table
from headscope.report.study_access import model_name
from headscope.report.table_cells import Cell, Part, estimate_cell, layer_cell
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

CLASSES = {
    "sep": "separators",
    "cls": "classification token",
    "first": "first token",
    "punctuation": '"." and ","',
}
TITLE = "Is attention to separators, or to another sink, a no-op?"
RATIOS = {
    "gradient-ratio": "|∂loss/∂A|",
    "weighted-ratio": "|A·∂loss/∂A|",
    "centred-ratio": "centred |∂loss/∂A|",
}
MEASURES = {"attention": "attention", **RATIOS}
JUDGED = ("gradient-ratio", "centred-ratio")  # compared with the threshold of small gradients


class NoOpGradients(StudyFigure):
    """A row of panels for each stack, a panel for each measure, a line for each kind of tokens."""

    name = "no-op-gradients"
    table = "gradients"
    title = TITLE
    caption = (
        "The first panel is the attention to each kind of token. The others are the mean gradient of the loss with "
        "respect to a weight on such a token, divided by the mean for other tokens (1: equal), on a log scale: the raw "
        "gradient, the gradient times the weight, and the gradient minus the mean of its row, which accounts for the "
        f"tokens that would receive the weight instead. Below the dashed line ({SMALL}) a gradient is called small. "
        "Bands are 95 % intervals over texts."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["gradients"]
        lines_of = {
            key: Line(points_of(rows))
            for key, rows in table.groupby(["stack", "measure", "class"], sort=False)
        }
        rows = []
        for stack in dict.fromkeys(table["stack"]):
            panels = []
            for measure, heading in MEASURES.items():
                keys = {name: (stack, measure, kind) for kind, name in CLASSES.items()}
                lines = {name: lines_of[key] for name, key in keys.items() if key in lines_of}
                if lines:
                    is_ratio = measure in RATIOS
                    unit = "ratio to other tokens" if is_ratio else "share"
                    threshold = SMALL if measure in JUDGED else None
                    title = heading_of(study, stack, heading)
                    panels.append(Lines(title, unit, lines, is_ratio, threshold))
            rows += [panels] if panels else []
        return draw_lines(rows, self.title, model_name(study))


@needs_table("gradients")
def part(study: Study, table: pd.DataFrame) -> Part:
    cells: dict[tuple[str, str, int], dict[str, Any]] = defaultdict(dict)
    for row in table.to_dict("records"):
        if row["class"] in NAMES:
            cells[row["stack"], row["class"], row["layer"]][row["measure"]] = row
    rows = []
    for (stack, kind, layer), of_measure in sorted(cells.items()):
        estimates = [estimate_cell(of_measure.get(measure)) for measure in MEASURES]
        rows.append([layer_cell(study, stack, layer), Cell(NAMES[kind], kind), *estimates])
    all_verdicts = verdicts(table)
    lead = " ".join(verdict.sentence for verdict in all_verdicts)
    note = " ".join(verdict.numbers for verdict in all_verdicts if verdict.numbers)
    note += (
        " Columns: “attention” is the attention to the tokens. The others are ratios to the same mean for other "
        "tokens: “gradient” of |∂loss/∂A|, “weighted” of |A·∂loss/∂A|, “centred” of the gradient minus the mean of "
        "its row."
    )
    headings = ("layer", "tokens", "attention", "gradient", "weighted", "centred")
    options: dict[str, Any] = {"file": "gradients.csv", "figures": ("no-op",), "words": {1}}
    return Part("no-op", TITLE, note.strip(), headings, rows, lead=lead, **options)


@needs_table("gradients")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """Whether attention to separators, or to another sink, is a no-op."""
    for verdict in verdicts(table):
        sentence, after = (
            plain(text, 450).rstrip(".") for text in (verdict.sentence, verdict.numbers)
        )
        is_clear = verdict.holds is not None
        yield Finding("", sentence, (), kind="separators", is_clear=is_clear, after=after)


SECTION = Section(figures={61: NoOpGradients}, parts={50: part}, findings={120: findings})
