"""Which heads look alike? A plane in which near heads attend alike, coloured by layer and by cluster, after Clark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_hex, to_rgba

from headscope.report.figures._palette import INK, MUTED, RULE, SERIES
from headscope.report.figures._style import SEQUENTIAL, _legible, headed, heading_height, slug, style
from headscope.report.grids import model_name, recorded
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 45
NEEDED = {"stack", "layer", "head", "x", "y", "cluster", "twin_layer", "twin_head"}
MOST_LABELS = 160  # heads that fit on a plane with their names
COLOURS = SERIES[1:]  # the page has its own shade of the first one, on which a label might not be read
SHAPES = ("o", "s", "D")  # the next three rounds of colours
PANEL, GAP, SIDE, LEGEND = 4.3, 0.25, 0.15, 0.34


@dataclass(frozen=True)
class ClusterMap:
    stack: str
    name: str
    title: str = "Heads that attend alike"
    caption: str = (
        "Each mark is a head, written LAYER.HEAD; near means alike (metric scaling of the root of the Jensen-Shannon "
        "divergence between rows of attention), and a grey line leads from each head to the one most like it."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return self.stack in _stacks(study)

    def draw(self, study: Study) -> Figure:
        heads = study.tables["clusters"]
        heads = heads[heads["stack"] == self.stack].sort_values(["layer", "head"]).reset_index(drop=True)
        subtitle = f"{model_name(study)}, {self.stack} · a mark is a head (layer.head), near means alike"
        subtitle += "; a grey line leads to the head most like it" + _said_of_layers(study, self.stack)
        with style():
            width = 2 * PANEL + GAP + 2 * SIDE
            top = heading_height(width, subtitle) + 0.3
            height = top + PANEL + LEGEND + SIDE
            fig = headed(width, height, self.title, subtitle)
            for column, (heading, paint) in enumerate((("by layer", _by_layer), ("by cluster", _by_cluster))):
                left = SIDE + column * (PANEL + GAP)
                ax = fig.add_axes((left / width, (LEGEND + SIDE) / height, PANEL / width, PANEL / height))
                _draw_plane(ax, heads, paint(heads))
                ax.set_title(heading, fontweight="bold")
                ax.legend(
                    loc="upper left",
                    bbox_to_anchor=(0, -0.01),
                    ncols=min(len(ax.get_legend_handles_labels()[1]), 12),
                    frameon=False,
                    handletextpad=0.1,
                    columnspacing=0.7,
                    borderaxespad=0.2,
                    fontsize=7,
                    labelcolor=MUTED,
                )
            return fig


def drawings(study: Study) -> Iterator[ClusterMap]:
    for stack in _stacks(study):
        yield ClusterMap(stack, f"clusters-{slug(stack)}")


def _stacks(study: Study) -> list[str]:
    """The stacks of clusters.csv that have two heads or more, in their usual order."""
    table = study.tables.get("clusters")
    if table is None or not set(table) >= NEEDED:
        return []
    sizes = table.dropna(subset=["x", "y"])["stack"].value_counts()
    found = [str(stack) for stack, count in sizes.items() if count > 1]
    return sorted(found, key=lambda stack: (STACKS.index(stack) if stack in STACKS else len(STACKS), stack))


def _said_of_layers(study: Study, stack: str) -> str:
    """How much nearer heads of one layer are than others, and what the plane leaves out; empty where not recorded."""
    ratio = recorded(study.record, "clusters", stack, "ratio")
    probability = recorded(study.record, "clusters", stack, "probability")
    explained = recorded(study.record, "clusters", stack, "explained")
    said = ""
    if isinstance(ratio, float) and isinstance(probability, float):
        said += f" · mean divergence within a layer is {ratio:.2f} of that between layers (p = {probability:.2g})"
    if isinstance(explained, float):
        said += f" · two axes hold {explained:.0%} of all differences"
    return said


@dataclass(frozen=True)
class _Group:
    """Heads that are painted alike."""

    label: str
    colour: str
    shape: str
    members: pd.Series[bool]


def _by_layer(heads: pd.DataFrame) -> list[_Group]:
    layers = sorted(heads["layer"].unique())
    shades = [to_hex(SEQUENTIAL(place)) for place in np.linspace(0.15, 1.0, len(layers))]
    every = max(len(layers) // 12, 1)  # of a deep model some layers are named, and the shades run on between them
    return [
        _Group(
            f"layer {layer}" if i == 0 else str(layer) if i % every == 0 else "", shade, "o", heads["layer"] == layer
        )
        for i, (layer, shade) in enumerate(zip(layers, shades, strict=True))
    ]


def _by_cluster(heads: pd.DataFrame) -> list[_Group]:
    groups = []
    for cluster in sorted(heads["cluster"].unique()):
        members = heads["cluster"] == cluster
        colour, shape = COLOURS[cluster % len(COLOURS)], SHAPES[cluster // len(COLOURS) % len(SHAPES)]
        label = f"cluster {cluster}" if cluster == 0 else str(cluster)
        groups.append(_Group(f"{label} ({members.sum()})", colour, shape, members))
    return groups


def _draw_plane(ax: Axes, heads: pd.DataFrame, groups: list[_Group]) -> None:
    has_labels = len(heads) <= MOST_LABELS
    _draw_twins(ax, heads)
    for group in groups:
        some = heads[group.members]
        size = 135 if has_labels else 22
        ax.scatter(
            some["x"],
            some["y"],
            s=size,
            color=group.colour,
            marker=group.shape,
            edgecolors=MUTED,
            linewidths=0.3,
            label=group.label or "_",
            zorder=2,
        )
        if has_labels:
            for x, y, layer, head in zip(some["x"], some["y"], some["layer"], some["head"], strict=True):
                ax.text(
                    x,
                    y,
                    f"{layer}.{head}",
                    ha="center",
                    va="center_baseline",
                    fontsize=4.8,
                    color=_legible(to_rgba(group.colour)),
                    zorder=3,
                )
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.06)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set(visible=True, color=RULE)


def _draw_twins(ax: Axes, heads: pd.DataFrame) -> None:
    """A line from each head to its twin; two that are each other's twins share one."""
    names = list(zip(heads["layer"], heads["head"], strict=True))
    place = dict(zip(names, zip(heads["x"], heads["y"], strict=True), strict=True))
    twins = list(zip(heads["twin_layer"], heads["twin_head"], strict=True))
    pairs = {(min(one, twin), max(one, twin)) for one, twin in zip(names, twins, strict=True) if twin in place}
    for one, twin in sorted(pairs):
        (x, y), (u, v) = place[one], place[twin]
        ax.plot([x, u], [y, v], color=INK, linewidth=0.6, alpha=0.35, zorder=1)
