"""The style of all figures: fonts, colours, headings, and the layers x heads panel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headscope.report.drawing.palette import (
    BOTH,
    DIVERGING_STOPS,
    INK,
    MISSING,
    MUTED,
    ON_DARK,
    ON_LIGHT,
    PAPER,
    RULE,
    SEQUENTIAL_STOPS,
    SERIES,
)
from headscope.report.scale import Scale, format_offset
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

SEQUENTIAL = LinearSegmentedColormap.from_list("headscope-sequential", SEQUENTIAL_STOPS)
DIVERGING = LinearSegmentedColormap.from_list("headscope-diverging", DIVERGING_STOPS)
REVERSED = DIVERGING.reversed("headscope-reversed")
_SWITCH_STOPS = (to_rgba(BOTH, 0.0), to_rgba(BOTH, 1.0))  # over grey
SWITCH = LinearSegmentedColormap.from_list("headscope-switch", _SWITCH_STOPS)

LONGEST_CELL = 5  # characters; a grid with a longer value prints none

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.parse_math": False,  # a model may be called "a$b$c"
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}


@contextmanager
def style() -> Iterator[None]:
    """The figures' own settings while drawing or saving, whatever the caller's matplotlib is set to."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def figure_with_heading(width: float, height: float, title: str, subtitle: str) -> Figure:
    """An empty figure of the size in inches with title and subtitle, which take `heading_height`."""
    fig = Figure(figsize=(width, height))
    heading = {"fontsize": 10, "fontweight": "bold", "va": "top"}
    below = {"fontsize": 8, "color": MUTED, "va": "top", "linespacing": 1.35}
    lines = "\n".join(_wrap_subtitle(width, subtitle))
    fig.text(0.12 / width, 1 - 0.10 / height, plain(title, _characters(width) - 4), heading)
    fig.text(0.12 / width, 1 - 0.32 / height, lines, below)
    return fig


def heading_height(width: float, subtitle: str) -> float:
    """The inches that title and subtitle take at the top."""
    return 0.34 + 0.16 * len(_wrap_subtitle(width, subtitle))


def _wrap_subtitle(width: float, subtitle: str) -> list[str]:
    fits = _characters(width)
    return wrap(plain(subtitle, 3 * fits), fits) or [""]


def _characters(width: float) -> int:
    """Characters of 8 points that fit into so many inches."""
    return max(int(width * 15), 20)


def norm_of(scale: Scale) -> Normalize:
    return Normalize(scale.low, scale.high)


def colours_of(scale: Scale) -> LinearSegmentedColormap:
    if scale.kind == "switch":
        return SWITCH
    if not scale.is_diverging:
        return SEQUENTIAL
    return REVERSED if scale.is_reversed else DIVERGING


def draw_bar(
    fig: Figure, bounds: tuple[float, float, float, float], scale: Scale, label: str
) -> Axes:
    """A colour bar as one small picture: as a mesh it would be 256 shapes in every SVG."""
    ax = fig.add_axes(bounds)
    ramp = np.linspace(scale.high, scale.low, 2 if scale.kind == "switch" else 256)[:, None]
    extent = (0.0, 1.0, scale.low, scale.high)
    colours: dict[str, Any] = {"cmap": colours_of(scale), "norm": norm_of(scale)}
    ax.imshow(ramp, extent=extent, aspect="auto", interpolation="none", **colours)
    ax.spines[:].set_visible(False)
    ax.yaxis.tick_right()
    ax.yaxis.set_label_position("right")
    ax.tick_params(length=0, pad=3)
    ax.set_xticks([])
    if scale.kind == "switch":
        ax.set_facecolor(MISSING)
        ax.set_yticks((0.25, 0.75), ("closed", "open"))
        return ax
    ax.set_ylabel(label, labelpad=4)
    if scale.clips:
        ends = (scale.low, 0.0, scale.high)
        ax.set_yticks(ends, [f"≤ {format_offset(ends[0])}", "0", f"≥ {format_offset(ends[2])}"])
    return ax


def whole_numbers(axis: Any, most: int = 10) -> None:
    """Ticks at whole numbers only: there is no layer 2.5."""
    axis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))


def draw_grid(ax: Axes, grid: NDArray[np.float64], scale: Scale, *, prints_values: bool) -> None:
    """Layers (down, 0 at the top) x heads (across) as coloured cells; grey if a head has no value."""
    layers, heads = grid.shape
    mesh = ax.pcolormesh(
        np.ma.masked_invalid(grid),
        cmap=colours_of(scale),
        norm=norm_of(scale),
        edgecolors=PAPER,
        linewidth=0.8 if heads <= 32 else 0.3,
        clip_on=False,  # saves a reference in every cell of the SVG
    )
    ax.set_facecolor(MISSING)
    ax.set(xlim=(0, heads), ylim=(layers, 0), aspect="equal")
    number_cells(ax.xaxis, heads, 1 if prints_values else 0)
    number_cells(ax.yaxis, layers, 1 if prints_values else 0)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    texts = [scale.cell(float(value)) for value in grid.ravel()] if prints_values else []
    longest = max(map(len, texts), default=0)
    if 0 < longest <= LONGEST_CELL:
        for (layer, head), text in zip(np.ndindex(grid.shape), texts, strict=True):
            colour = legible(mesh.to_rgba(grid[layer, head]))
            size = 6.8 if longest <= 4 else 5.8
            write_in_cell(ax, head + 0.5, layer + 0.52, text, size, colour)


def number_cells(axis: Any, count: int, step: int = 0) -> None:
    """Numbers in the middle of every `step`-th cell; 0: as many as fit."""
    step = step or (1 if count <= 16 else 2 if count <= 32 else 4 if count <= 64 else 8)
    shown = range(0, count, step)
    axis.set_ticks([i + 0.5 for i in shown], [str(i) for i in shown])


def write_in_cell(ax: Axes, x: float, y: float, text: str, size: float, colour: str) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)


def annotate(
    ax: Axes, text: str, point: tuple[Any, Any], shift: tuple[float, float], **options: Any
) -> None:
    """Write next to a point, `shift` typographic points from it."""
    ax.annotate(text, point, shift, textcoords="offset points", **options)


def write_above(ax: Axes, x: float, text: str, ha: str = "center") -> None:
    """Above the upper edge of the axes, at a value across."""
    style: dict[str, Any] = {"ha": ha, "va": "bottom", "fontsize": 7.5, "color": INK}
    annotate(ax, text, (x, 1), (0, 3), xycoords=("data", "axes fraction"), **style)


def legible(colour: Any) -> str:
    """Dark on pale, pale on dark, by relative luminance."""
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]
    )
    return ON_LIGHT if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.21 else ON_DARK


def draw_rules(ax: Axes, axis: Literal["x", "y"]) -> None:
    """Thin rules across an axis, behind the data, and muted ticks."""
    ax.grid(axis=axis, color=RULE, linewidth=0.5, alpha=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(colors=RULE, labelcolor=MUTED)


def draw_legend_below(fig: Figure, ncols: int = 0, texts: Mapping[str, str] | None = None) -> None:
    """A legend at the lower edge of the figure, of all labels in its axes, each once.

    ncols  0: as many as there are labels
    texts  what to write for the labels to show, in this order; by default all labels as they are
    """
    handles: dict[str, Any] = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = {
        texts[label] if texts else label: handles[label]
        for label in texts or handles
        if label in handles
    }
    options: dict[str, Any] = {"loc": "lower center", "frameon": False, "fontsize": 7.5}
    fig.legend(list(shown.values()), list(shown), ncols=ncols or len(shown), **options)


def draw_legend(
    fig: Figure, handles: Mapping[str, Artist], anchor: tuple[float, float], **options: Any
) -> None:
    """A small legend without a frame, by labels, whose lower left corner is at `anchor`."""
    options = {"loc": "lower left", "bbox_to_anchor": anchor, "borderpad": 0.0, **options}
    fig.legend(list(handles.values()), list(handles), frameon=False, fontsize=7.5, **options)


def name_blocks(ax: Axes, labels: Sequence[str]) -> None:
    """Label blocks of rows with equal labels once each, with a rule between blocks."""
    starts = [i for i, label in enumerate(labels) if i == 0 or label != labels[i - 1]]
    middles = [(a + b) / 2 for a, b in pairwise([*starts, len(labels)])]
    ax.set_yticks(middles, [labels[i] for i in starts])
    for start in starts[1:]:
        ax.axhline(start, color=RULE, linewidth=0.8)


def draw_dot(ax: Axes, x: float, y: float, label: str, *, is_filled: bool) -> None:
    """A dot in the first colour of series, or a ring if it is not filled."""
    dot: dict[str, Any] = {"markerfacecolor": SERIES[0] if is_filled else "none"}
    dot |= {"markeredgecolor": SERIES[0], "markersize": 5.5, "linestyle": "none"}
    ax.plot(x, y, "o", zorder=4, label=label, **dot)


def draw_interval(ax: Axes, low: float, high: float, y: float, colour: str = SERIES[0]) -> None:
    """A horizontal 95 % interval, behind its dot."""
    ax.plot([low, high], [y, y], color=colour, linewidth=2, alpha=0.45, zorder=3)
