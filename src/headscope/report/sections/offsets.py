"""Attention of each head by relative offset, a panel for each layer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import INK, MUTED, RULE, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.study_figure import DataSource, StackFigure
from headscope.report.drawing.style import annotate
from headscope.report.scale import format_offset
from headscope.report.section import Section
from headscope.report.study_access import maps_of, mean_over, model_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

REACH = 10  # largest offset that is shown, in both directions
LEAST_PEAK = 0.25  # smallest share of attention at one offset for which the peak is labelled
TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
PANELS = Panels(
    wide=1.75, tall=1.3, left=0.55, right=0.15, bottom=0.48, above=0.3, gap_x=0.32, gap_y=0.45
)


class OffsetsFigure(StackFigure):
    """A panel for each layer of a stack, a line for each head."""

    stem = "offsets"
    title = "Attention by relative position"
    caption = (
        "Each panel is a layer. A thin line is a head, the thick line the mean of the layer. The height at −1 is the "
        "share of attention to the previous token, at +1 to the next token. The highest peak is named."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return maps_of(study, "offset", 3)

    def source(self, study: Study) -> DataSource:
        return DataSource("offset", (self.stack,))

    def draw(self, study: Study) -> Figure:
        profiles = _window(maps_of(study, "offset", 3)[self.stack])
        layers = len(profiles)
        columns = min(layers, 3 if layers <= 6 else 4 if layers <= 16 else 6)
        rows = math.ceil(layers / columns)
        subtitle = (
            f"{model_name(study)}, {self.stack} · share of attention at each offset (key minus "
            "query); the y axis has a square-root scale"
        )
        most = max(float(np.nanmax(profiles)), 0.1)
        with PANELS.open(self.title, subtitle, rows, columns) as sheet:
            for layer in range(layers):
                row, column = divmod(layer, columns)
                ax = sheet.add_panel(row, column)
                _draw_layer(ax, profiles[layer], most)
                ax.set_title(f"layer {layer}", fontweight="bold", pad=4)
                if column == 0:
                    ax.set_ylabel("share")
                else:
                    ax.tick_params(labelleft=False)
                if layer + columns >= layers:
                    ax.set_xlabel("offset in tokens", labelpad=2)
            return sheet.figure


def _window(profiles: NDArray[Any]) -> NDArray[np.float64]:
    """The middle of [layer, head, 2R + 1]: at most REACH offsets to each side."""
    reach = profiles.shape[-1] // 2
    return np.asarray(profiles[..., max(reach - REACH, 0) : reach + REACH + 1], dtype=float)


def _draw_layer(ax: Axes, heads: NDArray[np.float64], most: float) -> None:
    reach = heads.shape[-1] // 2
    offsets = np.arange(-reach, heads.shape[-1] - reach)
    ax.axvline(0, color=RULE, linewidth=0.8, zorder=0)
    for profile in heads:
        ax.plot(offsets, profile, color=SERIES[0], linewidth=0.8, alpha=0.45, zorder=2)
    if np.isfinite(heads).any():
        ax.plot(offsets, mean_over(heads, 0), color=INK, linewidth=1.8, zorder=3)
        head, peak = np.unravel_index(int(np.nanargmax(heads)), heads.shape)
        height = float(heads[head, peak])
        if height >= LEAST_PEAK:
            x = float(offsets[peak])
            shift, side = (4, "left") if x <= 0 else (-4, "right")
            style: dict[str, Any] = {"ha": side, "va": "center", "fontsize": 6.5, "color": MUTED}
            text = f"head {head}: {height:.2f} at {format_offset(x)}"
            annotate(ax, text, (x, height), (shift, 0), **style)
    ax.set_xlim(-reach - 0.5, reach + 0.5)
    ax.set_yscale("function", functions=(_root, np.square))  # most heads are below 0.05
    ax.set_ylim(0, most * 1.12)
    ticks = [tick for tick in TICKS if tick <= most * 1.12]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    step = 5 if reach >= 5 else max(reach, 1)
    shown = [offset for offset in range(-reach, reach + 1) if offset % step == 0]
    ax.set_xticks(shown, [format_offset(float(offset)) for offset in shown])


def _root(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(np.maximum(shares, 0.0))


SECTION = Section(figures={39: OffsetsFigure})
