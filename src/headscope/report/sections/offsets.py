"""How far to the left or right does each head look? Mass per relative offset, one panel a layer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.drawing.palette import INK, MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import DataSource, StackFigure
from headscope.report.drawing.style import headed, heading_height, style
from headscope.report.scale import signed
from headscope.report.section import Section
from headscope.report.study_access import maps_of, model_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

REACH = 10  # offsets shown to each side
WORTH_NAMING = 0.25  # a head with this much mass at one offset has its peak labelled
TICKS = (0, 0.01, 0.1, 0.25, 0.5, 1)
PANEL_WIDTH, PANEL_HEIGHT, GAP_X, GAP_Y = 1.75, 1.3, 0.32, 0.45


class OffsetsFigure(StackFigure):
    stem = "offsets"
    title = "Attention by relative position"
    caption = (
        "A thin line is a head and the thick one the mean of its layer: the height at −1 is the share of "
        "attention to the previous token, at +1 to the next."
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
            f"{model_name(study)}, {self.stack} · share of attention at each offset (key minus query), a "
            "thin line a head, thick: mean of the layer; square-root axis; the highest peak is named"
        )
        with style():
            left, bottom = 0.55, 0.48
            width = max(left + columns * PANEL_WIDTH + (columns - 1) * GAP_X + 0.15, 4.2)
            top = heading_height(width, subtitle) + 0.3
            height = top + rows * PANEL_HEIGHT + (rows - 1) * GAP_Y + bottom
            fig = headed(width, height, self.title, subtitle)
            most = max(float(np.nanmax(profiles)), 0.1)
            for layer in range(layers):
                row, column = divmod(layer, columns)
                x = left + column * (PANEL_WIDTH + GAP_X)
                y = height - top - row * (PANEL_HEIGHT + GAP_Y) - PANEL_HEIGHT
                ax = fig.add_axes(
                    (x / width, y / height, PANEL_WIDTH / width, PANEL_HEIGHT / height)
                )
                _draw_layer(ax, profiles[layer], most)
                ax.set_title(f"layer {layer}", fontweight="bold", pad=4)
                if column == 0:
                    ax.set_ylabel("share")
                else:
                    ax.tick_params(labelleft=False)
                if layer + columns >= layers:
                    ax.set_xlabel("offset in tokens", labelpad=2)
            return fig


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
    finite = np.isfinite(heads)
    if finite.any():
        counts = finite.sum(axis=0)
        mean = np.divide(
            np.nansum(heads, axis=0), counts, out=np.full(len(offsets), np.nan), where=counts > 0
        )
        ax.plot(offsets, mean, color=INK, linewidth=1.8, zorder=3)
        head, peak = np.unravel_index(int(np.nanargmax(heads)), heads.shape)
        height = float(heads[head, peak])
        if height >= WORTH_NAMING:
            to_right = offsets[peak] <= 0
            ax.annotate(
                f"head {head}: {height:.2f} at {signed(float(offsets[peak]))}",
                (float(offsets[peak]), height),
                xytext=(4 if to_right else -4, 0),
                textcoords="offset points",
                ha="left" if to_right else "right",
                va="center",
                fontsize=6.5,
                color=MUTED,
            )
    ax.set_xlim(-reach - 0.5, reach + 0.5)
    ax.set_yscale("function", functions=(_root, np.square))  # most heads live below 0.05
    ax.set_ylim(0, most * 1.12)
    ax.set_yticks(
        *zip(*[(tick, f"{tick:g}") for tick in TICKS if tick <= most * 1.12], strict=True)
    )
    step = 5 if reach >= 5 else max(reach, 1)
    ax.set_xticks([o for o in range(-reach, reach + 1) if o % step == 0], minor=False)
    ax.set_xticklabels([signed(float(o)) for o in range(-reach, reach + 1) if o % step == 0])


def _root(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(np.maximum(shares, 0.0))


SECTION = Section(figures={39: OffsetsFigure})
