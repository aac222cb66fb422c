"""Figures of masks: which position (row) may attend to which (column), and the speed of a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.colors import ListedColormap
from matplotlib.ticker import LogLocator, NullLocator

from headscope.masks import Mask, resolve_mask, sparsity
from headscope.masks.speed import DENSE, MaskSpeed
from headscope.report.drawing.palette import INK, MISSING, SEQUENTIAL_STOPS, SERIES
from headscope.report.drawing.sheet import Panels
from headscope.report.drawing.style import draw_legend_below, draw_rules

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAP = Panels(wide=3.6, tall=3.6, left=0.6, right=0.25, bottom=0.6, above=0.15)
SPEED = Panels(wide=4.65, tall=2.0, left=0.75, right=0.2, bottom=0.85, above=0.2, gap_y=0.35)


def draw_mask(mask: Mask, length: int) -> Figure:
    allowed = resolve_mask(mask.at(length)[0])
    subtitle = f"{length} positions · {100 * sparsity(allowed):.1f} % of pairs are forbidden"
    with MAP.open(mask.name, subtitle, 1, 1) as sheet:
        axes = sheet.add_panel(0, 0)
        colours = ListedColormap([MISSING, SEQUENTIAL_STOPS[-1]])
        axes.imshow(allowed.numpy(), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set(xlabel="key position", ylabel="query position")
        axes.spines[["left", "bottom"]].set_visible(False)
    return sheet.figure


def draw_mask_speed(speed: MaskSpeed) -> Figure:
    """Above: milliseconds of attention by length; below: times as fast as dense attention, with intervals."""
    subtitle = (
        f"{speed.mask} · attention of {speed.heads} heads of width {speed.width}, {speed.batch_size} "
        f"{'sequence' if speed.batch_size == 1 else 'sequences'} at a time, measured on this machine"
    )
    with SPEED.open("Speed of attention with a sparse mask", subtitle, 2, 1) as sheet:
        above = sheet.add_panel(0, 0)
        below = sheet.add_panel(1, 0, sharex=above)
        lengths = [row.length for row in speed.lengths]
        for i, method in enumerate(speed.ways):
            _draw_method(above, below, speed, method, INK if method == DENSE else SERIES[i - 1])
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
            draw_rules(ax, "y")
        draw_legend_below(sheet.figure, 4)
    return sheet.figure


def _draw_method(above: Axes, below: Axes, speed: MaskSpeed, method: str, colour: str) -> None:
    rows = [(row.length, way) for row in speed.lengths for way in row.ways if way.way == method]
    lengths = [length for length, _ in rows]
    line: dict[str, Any] = {"color": colour, "markersize": 3, "linewidth": 1}
    above.plot(lengths, [way.milliseconds for _, way in rows], "o-", label=method, **line)
    if method == DENSE:
        return
    gains = [1 / way.ratio for _, way in rows]
    down = [1 / way.ratio - 1 / way.high for _, way in rows]
    up = [1 / way.low - 1 / way.ratio for _, way in rows]
    ends = [down, up]
    below.errorbar(lengths, gains, ends, fmt="o-", elinewidth=1, **line)
