"""Where does relevance go, layer by layer? What enters, what comes through heads, what biases add, what is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.report.drawing.data_source import Source, table
from headscope.report.drawing.lines import Line, Lines, draw_lines
from headscope.report.study_access import model_name, recorded
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 61
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


@dataclass(frozen=True)
class RelevanceLayers:
    name: str = "relevance-layers"
    title: str = "Where relevance goes, by layer"
    caption: str = (
        "In parts of what the model says. Layer −1 is what comes before the first layer (embeddings), the last one "
        "what comes after all layers. What leaves a layer, and enters the next one, is what entered it, what biases "
        "add and, in a decoder, what the source gave; the rest is lost: rounding by voita's rules, by AttnLRP's what "
        "the softmax drops."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return TABLE in study.tables

    def source(self, study: Study) -> Source:
        return table(TABLE)

    def draw(self, study: Study) -> Figure:
        table = study.tables[TABLE]
        stacks = list(dict.fromkeys(table["stack"]))
        rows = []
        for stack in stacks:
            panels = []
            for heading, parts in PANELS.items():
                lines: dict[str, Line] = {}
                for part, label in parts.items():
                    here = table[(table["stack"] == stack) & (table["part"] == part)].sort_values(
                        "layer"
                    )
                    points = list(
                        here[["layer", "value", "low", "high"]].itertuples(index=False, name=None)
                    )
                    lines |= {label: Line(points)} if points else {}
                named = heading if len(stacks) == 1 else f"{plain(stack, 12)}: {heading}"
                panels += [Lines(named, "part of what is said", lines)] if lines else []
            rows.append(panels)
        rules = recorded(study.record, "importance", "rules")
        told = f"{model_name(study)}, rules of {plain(rules, 20)}" if rules else model_name(study)
        return draw_lines(rows, self.title, told)


def drawings(study: Study) -> Iterator[RelevanceLayers]:
    yield RelevanceLayers()
