"""A mask as a picture: which position (row) may attend to which (column)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.colors import ListedColormap

from headscope.masks import Mask, met, sparsity
from headscope.report.drawing.palette import MISSING, SEQUENTIAL_STOPS
from headscope.report.drawing.style import headed, heading_height, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE, LEFT, RIGHT, BOTTOM = 3.6, 0.6, 0.25, 0.6


def draw_mask(mask: Mask, length: int) -> Figure:
    allowed = met(mask.at(length)[0])
    width = SIDE + LEFT + RIGHT
    subtitle = f"{length} positions · {100 * sparsity(allowed):.1f} % may not be attended to"
    with style():
        top = heading_height(width, subtitle) + 0.15
        height = top + SIDE + BOTTOM
        fig = headed(width, height, mask.name, subtitle)
        axes = fig.add_axes((LEFT / width, BOTTOM / height, SIDE / width, SIDE / height))
        colours = ListedColormap([MISSING, SEQUENTIAL_STOPS[-1]])
        axes.imshow(allowed.numpy(), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set_xlabel("attended to")
        axes.set_ylabel("attends")
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
    return fig
