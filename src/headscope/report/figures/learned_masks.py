"""Which positions matter: a learned mask as a map, and its mean over kinds of positions, after SparseBERT's figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.figures._palette import MISSING, MUTED, SEQUENTIAL_STOPS
from headscope.report.figures._source import Source, table
from headscope.report.figures._style import SEQUENTIAL, headed, heading_height, style
from headscope.report.grids import model_name, plain, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 22
WIDTH, SIDE, LEFT, GAP, BOTTOM = 7.2, 3.5, 0.6, 1.6, 0.6
PREFIX = "mask/"


@dataclass(frozen=True)
class LearnedMaskMap:
    """On the left every pair of positions, on the right the mean over kinds of pairs."""

    aim: str
    name: str
    title: str = "Which positions need to attend to which"
    caption: str = (
        "Left: how open attention from a position (row) to another (column) is, by the mask that was learned: for a "
        "soft mask sigmoid(α), else the share of masks (seeds, layers or heads) that leave it open. Right: the mean of "
        "sigmoid(α) over the diagonal, pairs with a special token, neighbours and all others, weighted by how often "
        "they occur in the texts; lines are 95 % intervals over seeds, where there are several."
    )
    is_raster: bool = True

    def applies(self, study: Study) -> bool:
        return PREFIX + self.aim in study.maps and "positions" in study.tables

    def source(self, study: Study) -> Source:
        return table("positions")

    def draw(self, study: Study) -> Figure:
        grid = study.maps[PREFIX + self.aim]
        table = study.tables["positions"].query("aim == @self.aim")
        seeds = int(table["seeds"].max())
        subtitle = f"{model_name(study)} · {plain(self.aim, 60)} · {seeds} seed{'' if seeds == 1 else 's'}"
        with style():
            height = heading_height(WIDTH, subtitle) + 0.15 + SIDE + BOTTOM
            fig = headed(WIDTH, height, self.title, subtitle)
            axes = fig.add_axes((LEFT / WIDTH, BOTTOM / height, SIDE / WIDTH, SIDE / height))
            is_hard = bool(np.isin(grid, (0.0, 1.0)).all())
            low, high = (0.0, 1.0) if is_hard else np.quantile(grid, (0.01, 0.99))
            image = axes.imshow(grid, cmap=SEQUENTIAL, vmin=low, vmax=high, interpolation="nearest")
            axes.set_xlabel("attended to")
            axes.set_ylabel("attends")
            for side in ("left", "bottom"):
                axes.spines[side].set_visible(False)
            bar = fig.add_axes(((LEFT + SIDE + 0.1) / WIDTH, BOTTOM / height, 0.1 / WIDTH, SIDE / height))
            fig.colorbar(image, cax=bar).outline.set_visible(False)
            start = LEFT + SIDE + GAP
            right = fig.add_axes((start / WIDTH, BOTTOM / height, (WIDTH - start - 0.2) / WIDTH, 0.55 * SIDE / height))
            _bars(right, table["positions"].tolist(), *(table[c].to_numpy(float) for c in ("value", "low", "high")))
        return fig


def _bars(axes: Axes, names: list[str], values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    place = np.arange(len(names))
    axes.barh(place, np.ones(len(names)), color=MISSING, height=0.6)
    axes.barh(place, values, color=SEQUENTIAL_STOPS[-2], height=0.6)
    axes.hlines(place, low, high, color=SEQUENTIAL_STOPS[-1], linewidth=1.5)
    for y, value in zip(place, values, strict=True):
        axes.text(1.02, float(y), f"{value:.2f}", va="center", color=MUTED)
    axes.set_yticks(place, names)
    axes.set_xlim(0, 1.15)
    axes.set_xticks([0, 0.5, 1])
    axes.invert_yaxis()
    axes.set_xlabel("sigmoid(α)")


def drawings(study: Study) -> Iterator[LearnedMaskMap]:
    for key in study.maps:
        if key.startswith(PREFIX):
            aim = key.removeprefix(PREFIX)
            yield LearnedMaskMap(aim, f"learned-mask-{slug(aim)}")
