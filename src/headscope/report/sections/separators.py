"""Is attention to separators, or to another sink, a no-op?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headscope.analysis.separators import NAMES, SMALL, verdicts
from headscope.report.drawing.lines import Line, Lines, draw_lines, heading_of, points_of
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.finding import Finding
from headscope.report.section import Section
from headscope.report.study_access import model_name
from headscope.report.table_cells import Cell, Part, estimate_cell, layer_cell
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

CLASSES = {
    "sep": "separators",
    "cls": "classification token",
    "first": "first token",
    "punctuation": '"." and ","',
}
RATIOS = {
    "gradient-ratio": "|∂loss/∂A|",
    "weighted-ratio": "|A·∂loss/∂A|",
    "centred-ratio": "centred |∂loss/∂A|",
}
JUDGED = ("gradient-ratio", "centred-ratio")  # that are called small or not


class NoOpGradients(StudyFigure):
    name = "no-op-gradients"
    table = "gradients"
    title = "Is attention to separators, or to another sink, a no-op?"
    caption = (
        "Left: the attention that each kind of token gets. Then the mean gradient by a weight on such a token over "
        "that by a weight on other tokens (1: the same): as it is, times the weight, and less its row's mean, which "
        f"counts where weight goes instead; below the broken line ({SMALL}) a gradient is called small. Log scale. "
        "Bands are 95 % intervals over texts."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["gradients"]
        rows = []
        for stack in dict.fromkeys(table["stack"]):
            panels = []
            for measure, heading in {"attention": "attention", **RATIOS}.items():
                here = table[(table["stack"] == stack) & (table["measure"] == measure)]
                lines = {
                    name: Line(points_of(here[here["class"] == kind]))
                    for kind, name in CLASSES.items()
                }
                lines = {name: line for name, line in lines.items() if line.points}
                if lines:
                    unit = "share" if measure == "attention" else "over others"
                    threshold = SMALL if measure in JUDGED else None
                    named = heading_of(study, stack, heading)
                    panels.append(
                        Lines(
                            named, unit, lines, is_ratio=measure != "attention", threshold=threshold
                        )
                    )
            rows += [panels] if panels else []
        return draw_lines(rows, self.title, model_name(study))


def part(study: Study) -> Part | None:
    table = study.tables.get("gradients")
    if table is None:
        return None
    cells: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        if row["class"] in NAMES:
            cells.setdefault((row["stack"], row["layer"], row["class"]), {})[row["measure"]] = row
    measures = ("attention", "gradient-ratio", "weighted-ratio", "centred-ratio")
    rows = [
        [
            layer_cell(study, stack, layer),
            Cell(NAMES[kind], kind),
            *(estimate_cell(of.get(measure)) for measure in measures),
        ]
        for (stack, layer, kind), of in sorted(
            cells.items(), key=lambda item: (item[0][0], item[0][2], item[0][1])
        )
    ]
    told = verdicts(table)
    lead = " ".join(verdict.sentence for verdict in told)
    note = " ".join(verdict.numbers for verdict in told if verdict.numbers)
    note += (
        " The columns: attention to the tokens, and over that on other tokens the mean of |∂loss/∂A|, of |A·∂loss/∂A| "
        "and of the gradient less its row's mean."
    )
    headings = ("layer", "tokens", "attention", "gradient", "weighted", "centred")
    heading = "Is attention to separators, or to another sink, a no-op?"
    return Part(
        "no-op",
        heading,
        note.strip(),
        headings,
        rows,
        "gradients.csv",
        ("no-op",),
        frozenset({1}),
        lead=lead,
    )


def findings(study: Study) -> Iterator[Finding]:
    """Whether attention to separators, or to another sink, is a no-op."""
    table = study.tables.get("gradients")
    for verdict in [] if table is None else verdicts(table):
        sentence = plain(f"{verdict.sentence} {verdict.numbers}".strip(), 900).rstrip(".")
        yield Finding("", sentence, (), kind="separators", is_clear=verdict.holds is not None)


SECTION = Section(figures={61: NoOpGradients}, parts={150: part}, findings={120: findings})
