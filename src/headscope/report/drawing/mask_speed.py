"""Does a mask pay? Milliseconds of attention by length, for each way to attend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator, NullLocator

from headscope.masks.speed import DENSE, MaskSpeed
from headscope.report.drawing.palette import INK, MUTED, RULE, SERIES
from headscope.report.drawing.style import draw_legend_below, headed, heading_height, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT, BOTTOM, PANEL, GAP = 5.6, 0.75, 0.2, 0.85, 2.0, 0.35


def draw_mask_speed(found: MaskSpeed) -> Figure:
    """Above: milliseconds; below: times as fast as dense attention, with intervals."""
    subtitle = (
        f"{found.mask} · attention of {found.heads} heads of width {found.width}, {found.batch_size} "
        f"{'sequence' if found.batch_size == 1 else 'sequences'} at a time, measured on this machine"
    )
    with style():
        top = heading_height(WIDTH, subtitle) + 0.2
        height = top + 2 * PANEL + GAP + BOTTOM
        fig = headed(WIDTH, height, "Does a sparse mask pay?", subtitle)
        size = ((WIDTH - LEFT - RIGHT) / WIDTH, PANEL / height)
        above = fig.add_axes((LEFT / WIDTH, (height - top - PANEL) / height, *size))
        below = fig.add_axes((LEFT / WIDTH, BOTTOM / height, *size), sharex=above)
        lengths = [row.length for row in found.lengths]
        for place, way in enumerate(found.ways):
            _draw_way(above, below, found, way, INK if way == DENSE else SERIES[place - 1])
        below.axhline(1.0, color=INK, linewidth=1)
        above.set(xscale="log", yscale="log", ylabel="milliseconds")
        below.set(xlabel="tokens", ylabel="times as fast as dense", yscale="log")
        above.tick_params(labelbottom=False)
        for ax in (above, below):
            ax.set_xticks(lengths, [str(length) for length in lengths])
            ax.set_xticks([], minor=True)
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_locator(NullLocator())
            ax.tick_params(colors=RULE, labelcolor=MUTED)
            ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
            ax.set_axisbelow(True)
        handles, labels = above.get_legend_handles_labels()
        draw_legend_below(fig, handles, labels, 4)
    return fig


def _draw_way(above: Axes, below: Axes, found: MaskSpeed, way: str, colour: str) -> None:
    rows = [(row.length, one) for row in found.lengths for one in row.ways if one.way == way]
    lengths = [length for length, _ in rows]
    above.plot(
        lengths,
        [one.milliseconds for _, one in rows],
        "o-",
        color=colour,
        markersize=3,
        linewidth=1,
        label=way,
    )
    if way == DENSE:
        return
    gains = [1 / one.ratio for _, one in rows]
    ends = [
        [1 / one.ratio - 1 / one.high for _, one in rows],
        [1 / one.low - 1 / one.ratio for _, one in rows],
    ]
    below.errorbar(
        lengths, gains, ends, fmt="o-", color=colour, markersize=3, linewidth=1, elinewidth=1
    )
