"""What does a statistic say of every head? Layers down, heads across, one figure a statistic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.ablation.ablation_results import LOSS, METRIC
from headscope.ablation.glossary import DEFINITIONS
from headscope.report.figures._source import Source
from headscope.report.figures._style import draw_bar, draw_grid, headed, heading_height, style
from headscope.report.grids import grid_of, model_name, plain, slug, stacks_with, statistics_of
from headscope.report.scale import Scale, scale_of, sentence_of, title_of
from headscope.study.schema.names import StatisticName

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

ORDER = 90  # after the figures that tell a story
MOST_HEADS_WITH_VALUES = 16
DRAWN_TOGETHER = ("js-", "pattern-")  # several statistics of one kind have one figure for all
DRAWN_WITH_STARS = (LOSS, METRIC)
GRADIENTS = tuple(
    name for name in DEFINITIONS if name.startswith("gradient")
)  # drawn against exact removal


@dataclass(frozen=True)
class Panel:
    """One layers x heads grid with a heading of its own."""

    heading: str
    grid: NDArray[np.float64]


@dataclass(frozen=True)
class HeatMap:
    """One statistic over all heads, its stacks side by side on one colour scale."""

    statistic: str
    name: str
    definition: str = ""
    is_raster: bool = False

    @property
    def title(self) -> str:
        return title_of(self.statistic)

    @property
    def caption(self) -> str:
        means = f"{self.definition.rstrip('.')}. " if self.definition else ""
        grey = "closed" if StatisticName.parse(self.statistic).is_gate else "no value"
        return f"{means}Rows are layers, 0 (next to the input) at the top; columns are heads; grey: {grey}."

    def applies(self, study: Study) -> bool:
        return bool(stacks_with(study, self.statistic))

    def source(self, study: Study) -> Source:
        return Source("heads", (self.statistic,))

    def draw(self, study: Study) -> Figure:
        stacks = stacks_with(study, self.statistic)
        grids = [grid_of(study, self.statistic, stack) for stack in stacks]
        scale = scale_of(self.statistic, np.concatenate([grid.ravel() for grid in grids]))
        panels = [Panel(stack, grid) for stack, grid in zip(stacks, grids, strict=True)]
        known = self.title != self.statistic
        subtitle = f"{self.statistic} · {model_name(study)}" if known else model_name(study)
        if self.definition:
            subtitle += f" · {self.definition}"
        return draw_panels(panels, scale, self.title, subtitle)


def drawings(study: Study) -> Iterator[HeatMap]:
    taken: set[str] = set()
    elsewhere = (*DRAWN_WITH_STARS, *(GRADIENTS if stacks_with(study, LOSS) else ()))
    for statistic in statistics_of(study):
        if (
            statistic.startswith(DRAWN_TOGETHER)
            or statistic in elsewhere
            or StatisticName.parse(statistic).lens
        ):
            continue
        stem = name = f"heat-{slug(statistic)}"
        while name in taken:  # two statistics may differ only in signs that a file name cannot hold
            name = f"{stem}-{len(taken)}"
        taken.add(name)
        yield HeatMap(statistic, name, sentence_of(statistic))


def draw_panels(
    panels: list[Panel], scale: Scale, title: str, subtitle: str, unit: str | None = None
) -> Figure:
    """Grids side by side on one scale with one colour bar; the size follows the number of cells.

    unit  beside the colour bar, where it is not the scale's own
    """
    with style():
        heads = [panel.grid.shape[1] for panel in panels]
        layers = max(panel.grid.shape[0] for panel in panels)
        prints_values = max(heads) <= MOST_HEADS_WITH_VALUES
        cell = 0.30 if prints_values else 0.17 if max(heads) <= 40 else 0.11
        left, gap, right, bottom = 0.55, 0.62, 0.85 if unit is None else 1.1, 0.48
        body = sum(heads) * cell + gap * (len(panels) - 1)
        width = max(left + body + right, 4.2)
        top = heading_height(width, subtitle) + 0.28
        height = top + max(layers * cell, 0.9) + bottom
        fig = headed(width, height, title, subtitle)
        x = left
        for panel in panels:
            rows, columns = panel.grid.shape
            bounds = (
                x / width,
                1 - (top + rows * cell) / height,
                columns * cell / width,
                rows * cell / height,
            )
            ax = fig.add_axes(bounds)
            draw_grid(ax, panel.grid, scale, prints_values=prints_values)
            ax.set_title(
                plain(panel.heading, max(int(columns * cell * 13), 12)), fontweight="bold", pad=5
            )
            ax.set_xlabel("head", labelpad=2)
            if panel is panels[0]:
                ax.set_ylabel("layer", labelpad=3)
            x += columns * cell + gap
        tall = max(min(layers * cell, 2.6), 0.9)
        bounds = (
            (left + body + 0.2) / width,
            1 - (top + tall) / height,
            0.11 / width,
            tall / height,
        )
        draw_bar(fig, bounds, scale, scale.unit if unit is None else unit)
        return fig
