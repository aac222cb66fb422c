"""Average attention of each head: small maps, layers down and heads across."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import PowerNorm

from headscope.report.drawing.palette import MISSING
from headscope.report.drawing.sheet import Sheet
from headscope.report.drawing.study_figure import DataSource, StackFigure
from headscope.report.drawing.style import SEQUENTIAL, figure_with_heading, heading_height, style
from headscope.report.scale import Scale
from headscope.report.section import Section
from headscope.report.study_access import maps_of, model_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

POSITIONS = 64
DPI = 150  # the grid is laid out in whole pixels at this resolution, so that no position falls between two
NORM = PowerNorm(0.5, 0, 1)  # the square root: even attention over 64 tokens is still visible
WEIGHTS = (0, 0.05, 0.25, 0.5, 1)  # at the colour bar
GAP = 3  # pixels between maps, at one pixel a position


class MeanMap(StackFigure):
    """A small map for each head of a stack, in one picture."""

    stem = "mean-map"
    title = "Mean attention map of every head"
    caption = (
        "Each square is a head: rows are query positions, columns are key positions. A diagonal means that the head "
        "attends at a fixed distance, a vertical stripe that it attends to a fixed position."
    )
    is_raster = True

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return maps_of(study, "map", 4)

    def source(self, study: Study) -> DataSource:
        return DataSource("map", (self.stack,))

    def draw(self, study: Study) -> Figure:
        maps = maps_of(study, "map", 4)[self.stack]
        layers, heads = maps.shape[:2]
        most = POSITIONS if heads <= 20 and layers <= 32 else POSITIONS // 2
        maps = maps[:, :, :most, :most]
        tile_high, tile_wide = maps.shape[2] + GAP, maps.shape[3] + GAP
        fits = min(1650 // (tile_wide * heads), 1650 // (tile_high * layers))
        zoom = max(1, min(fits, 2 if tile_wide > 20 else 8))
        wide, high = heads * tile_wide * zoom / DPI, layers * tile_high * zoom / DPI
        subtitle = (
            f"{model_name(study)}, {self.stack} · positions 0 to {max(maps.shape[2:]) - 1}, rows: queries, "
            "columns: keys; grey: no text was that long"
        )
        with style():
            left, right, bottom = _whole(0.55), _whole(0.9), _whole(0.15)
            width = max(left + wide + right, _whole(4.2))
            top = _whole(heading_height(width, subtitle) + 0.4)
            height = top + max(high, _whole(0.9)) + bottom
            fig = figure_with_heading(width, height, self.title, subtitle)
            bottom = 1 - (top + high) / height
            ax = fig.add_axes((left / width, bottom, wide / width, high / height))
            ax.imshow(_tile(maps), interpolation="none", aspect="auto")
            for axis, count, size in ((ax.xaxis, heads, tile_wide), (ax.yaxis, layers, tile_high)):
                middles = [size * (i + 0.5) - GAP / 2 - 0.5 for i in range(count)]
                axis.set_ticks(middles, [str(i) for i in range(count)])
            ax.tick_params(length=0, pad=3, top=False, labeltop=True, labelbottom=False)
            ax.xaxis.set_label_position("top")
            ax.set_xlabel("head", labelpad=3)
            ax.set_ylabel("layer", labelpad=3)
            ax.spines[:].set_visible(False)
            tall = max(min(high, 2.4), 0.9)
            sheet = Sheet(fig, width, height, top)
            scale = Scale("share", 0.0, 1.0)
            bar = sheet.add_bar(left + wide + 0.2, tall, scale, "mean attention weight")
            bar.set_yticks([NORM(weight) for weight in WEIGHTS], [f"{w:g}" for w in WEIGHTS])
            return fig


def _whole(inches: float) -> float:
    """Inches rounded to whole pixels."""
    return round(inches * DPI) / DPI


def _tile(maps: NDArray[Any]) -> NDArray[np.uint8]:
    """[layer, head, query, key] as one picture [y, x, RGBA]; gaps transparent, no data grey."""
    layers, heads, queries, keys = maps.shape
    picture = np.zeros((layers * (queries + GAP), heads * (keys + GAP), 4), dtype=np.uint8)
    colours = SEQUENTIAL.with_extremes(bad=MISSING)
    for layer in range(layers):
        for head in range(heads):
            y, x = layer * (queries + GAP), head * (keys + GAP)
            weights = np.ma.masked_invalid(np.asarray(maps[layer, head], dtype=np.float32))
            picture[y : y + queries, x : x + keys] = colours(NORM(weights), bytes=True)
    return picture


SECTION = Section(figures={51: MeanMap})
