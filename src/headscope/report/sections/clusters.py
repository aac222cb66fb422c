"""Which heads look alike? A plane in which near heads attend alike, by layer, role and cluster, after Clark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.colors import to_hex, to_rgba

from headscope.report.drawing.palette import INK, MISSING, MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import SEQUENTIAL, _legible, headed, heading_height, style
from headscope.report.finding import Finding, Measured, address_of
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.section import Section
from headscope.report.shared_heads import Place, head_of
from headscope.report.study_access import model_name, recorded
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

NEEDED = {"stack", "layer", "head", "x", "y", "cluster", "twin_layer", "twin_head"}
MOST_LABELS = 160  # heads that fit on a plane with their names
COLOURS = SERIES[
    1:
]  # the page has its own shade of the first one, on which a label might not be read
SHAPES = ("o", "s", "D")  # the next three rounds of colours
PANEL, GAP, SIDE, LEGEND_ROW = 4.3, 0.25, 0.15, 0.19
MARK, SMALL_MARK = 0.165, 0.065  # inches across
MARGIN = 0.06  # of the extent, around the marks
Panel = Literal["layer", "role", "cluster"]


FOUND = (
    "The same plane, coloured by hierarchical clusters of the distances between heads themselves (average linkage; as "
    "many clusters as give the largest silhouette, which is in the heading: near 0 there are no sharp clusters)."
)


class ClusterMap(StackFigure):
    stem = "clusters"
    table = "clusters"
    panels: tuple[Panel, ...] = ("layer", "cluster")
    title = "Heads that attend alike"
    caption = (
        "Each mark is a head, written LAYER.HEAD; near means alike (metric scaling of the root of the Jensen-Shannon "
        "divergence between rows of attention), and a grey line leads from each head to the one most like it. Marks "
        "that would cover each other are moved apart."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return _stacks(study)

    @classmethod
    def for_study(cls, study: Study) -> Iterable[ClusterMap]:
        """By layer and role, then by cluster; by layer and cluster where nothing is known of roles."""
        for stack in _stacks(study):
            by_layer = cls(stack)
            if "roles" not in study.tables:
                yield by_layer
                continue
            by_layer.panels = ("layer", "role")
            yield by_layer
            by_cluster = cls(stack)
            by_cluster.name, by_cluster.panels = f"{by_layer.name}-found", ("cluster",)
            by_cluster.title, by_cluster.caption = "Clusters of heads that attend alike", FOUND
            yield by_cluster

    def draw(self, study: Study) -> Figure:
        heads = study.tables["clusters"]
        heads = (
            heads[heads["stack"] == self.stack]
            .sort_values(["layer", "head"])
            .reset_index(drop=True)
        )
        heads[["x", "y"]] = _apart(heads[["x", "y"]].to_numpy(dtype=float), _mark(heads))
        painted = {one: _groups(one, heads, study) for one in self.panels}
        subtitle = (
            f"{model_name(study)}, {self.stack} · a mark is a head (layer.head), near means alike"
        )
        subtitle += "; a grey line leads to the head most like it"
        subtitle += _said_of_layers(study, self.stack) if "layer" in self.panels else ""
        subtitle += _said_of_clusters(study, self.stack) if "cluster" in self.panels else ""
        with style():
            width = len(painted) * (PANEL + GAP) - GAP + 2 * SIDE
            top = heading_height(width, subtitle) + 0.3
            columns = {
                one: _columns([group.label for group in groups if group.label])
                for one, groups in painted.items()
            }
            legend = (
                LEGEND_ROW * max(-(-len(groups) // columns[one]) for one, groups in painted.items())
                + 0.1
            )
            height = top + PANEL + legend + SIDE
            fig = headed(width, height, self.title, subtitle)
            for place, (one, groups) in enumerate(painted.items()):
                left = SIDE + place * (PANEL + GAP)
                ax = fig.add_axes(
                    (left / width, (legend + SIDE) / height, PANEL / width, PANEL / height)
                )
                _draw_plane(ax, heads, groups)
                _draw_legend(ax, columns[one])
                ax.set_title(f"by {one}", fontweight="bold")
            return fig


def _stacks(study: Study) -> list[str]:
    """The stacks of clusters.csv that have two heads or more, in their usual order."""
    table = study.tables.get("clusters")
    if table is None or not set(table) >= NEEDED:
        return []
    sizes = table.dropna(subset=["x", "y"])["stack"].value_counts()
    found = [str(stack) for stack, count in sizes.items() if count > 1]
    return sorted(
        found, key=lambda stack: (STACKS.index(stack) if stack in STACKS else len(STACKS), stack)
    )


def _said_of_clusters(study: Study, stack: str) -> str:
    silhouette = recorded(study.record, "clusters", stack, "silhouette")
    return f" · silhouette {silhouette:.2f}" if isinstance(silhouette, float) else ""


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

    @property
    def ink(self) -> str:
        """For names on the marks; on grey, which the page has its own shades of, its own ink."""
        return INK if self.colour == MISSING else _legible(to_rgba(self.colour))


def _groups(panel: Panel, heads: pd.DataFrame, study: Study) -> list[_Group]:
    if panel == "role":
        return _by_role(heads, study)
    return _by_layer(heads) if panel == "layer" else _by_cluster(heads)


def _by_layer(heads: pd.DataFrame) -> list[_Group]:
    layers = sorted(heads["layer"].unique())
    shades = [to_hex(SEQUENTIAL(place)) for place in np.linspace(0.15, 1.0, len(layers))]
    every = max(
        len(layers) // 12, 1
    )  # of a deep model some layers are named, and the shades run on between them
    return [
        _Group(
            f"layer {layer}" if i == 0 else str(layer) if i % every == 0 else "",
            shade,
            "o",
            heads["layer"] == layer,
        )
        for i, (layer, shade) in enumerate(zip(layers, shades, strict=True))
    ]


def _by_cluster(heads: pd.DataFrame) -> list[_Group]:
    groups = []
    for cluster in sorted(heads["cluster"].unique()):
        members = heads["cluster"] == cluster
        colour, shape = (
            COLOURS[cluster % len(COLOURS)],
            SHAPES[cluster // len(COLOURS) % len(SHAPES)],
        )
        label = f"cluster {cluster}" if cluster == 0 else str(cluster)
        groups.append(_Group(f"{label} ({members.sum()})", colour, shape, members))
    return groups


def _by_role(heads: pd.DataFrame, study: Study) -> list[_Group]:
    """By the family of a head's strongest role, in the colours of the map of roles and in shapes of their own."""
    strongest = {
        place: family_of(of_head[0].name, study)[0]
        for place, of_head in roles_by_head(study).items()
    }
    places = zip(heads["stack"], heads["layer"], heads["head"], strict=True)
    families = heads["stack"].copy()
    families[:] = [strongest.get(place, "") for place in places]
    groups = []
    for i, (name, colour) in enumerate([("", MISSING), *FAMILIES.items()]):
        members = families == name
        if members.any():
            label = f"{name or 'no rule holds'} ({members.sum()})"
            groups.append(_Group(label, colour, SHAPES[i % len(SHAPES)], members))
    return groups[1:] + groups[:1] if (families == "").any() else groups


def _mark(heads: pd.DataFrame) -> float:
    """Inches across a mark."""
    return MARK if len(heads) <= MOST_LABELS else SMALL_MARK


def _apart(points: NDArray[np.float64], mark: float) -> NDArray[np.float64]:
    """The points [head, 2] with those that would cover each other moved apart until they hardly do."""
    least = mark * (1 + 2 * MARGIN) * max(np.ptp(points, axis=0).max(), 1e-9) / PANEL
    angle = np.arange(len(points)) * 2.4  # a direction of its own for each of those at one place
    moved: NDArray[np.float64] = points + 1e-3 * least * np.stack(
        [np.cos(angle), np.sin(angle)], axis=1
    )
    for _ in range(200):
        between = moved[:, None] - moved
        distance = np.linalg.norm(between, axis=-1)
        np.fill_diagonal(distance, np.inf)
        missing = np.maximum(least - distance, 0.0)
        if missing.max() < 0.02 * least:
            break
        moved += 0.45 * (between / distance[..., None] * missing[..., None]).sum(axis=1)
    return moved


def _draw_plane(ax: Axes, heads: pd.DataFrame, groups: list[_Group]) -> None:
    has_labels = len(heads) <= MOST_LABELS
    across = 72 * _mark(heads)
    _draw_twins(ax, heads)
    for group in groups:
        some = heads[group.members]
        ax.scatter(
            some["x"],
            some["y"],
            s=(
                across
                if group.shape == "o"
                else 0.9 * across
                if group.shape == "s"
                else 0.78 * across
            )
            ** 2,
            color=group.colour,
            marker=group.shape,
            edgecolors=MUTED,
            linewidths=0.3,
            label=group.label or "_",
            zorder=2,
        )
        if has_labels:
            for x, y, layer, head in zip(
                some["x"], some["y"], some["layer"], some["head"], strict=True
            ):
                name = f"{layer}.{head}"
                size = 5.6 if len(name) <= 3 else 4.8
                ax.text(
                    x,
                    y,
                    name,
                    ha="center",
                    va="center_baseline",
                    fontsize=size,
                    color=group.ink,
                    zorder=3,
                )
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(MARGIN)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set(visible=True, color=RULE)


def _draw_twins(ax: Axes, heads: pd.DataFrame) -> None:
    """A line from each head to its twin; two that are each other's twins share one."""
    names = list(zip(heads["layer"], heads["head"], strict=True))
    place = dict(zip(names, zip(heads["x"], heads["y"], strict=True), strict=True))
    twins = list(zip(heads["twin_layer"], heads["twin_head"], strict=True))
    pairs = {
        (min(one, twin), max(one, twin))
        for one, twin in zip(names, twins, strict=True)
        if twin in place
    }
    for one, twin in sorted(pairs):
        (x, y), (u, v) = place[one], place[twin]
        ax.plot([x, u], [y, v], color=INK, linewidth=0.6, alpha=0.35, zorder=1)


def _columns(labels: list[str]) -> int:
    """How many labels of a legend stand side by side under a panel."""
    wide = [0.3 + 0.062 * len(label) for label in labels]  # inches: a mark, and letters of 7 points
    return len(labels) if sum(wide) <= PANEL else max(int(PANEL / max(wide)), 1)


def _draw_legend(ax: Axes, columns: int) -> None:
    """Under the panel, to be read row by row."""
    handles, labels = ax.get_legend_handles_labels()
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    ax.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper left",
        bbox_to_anchor=(0, -0.01),
        ncols=columns,
        frameon=False,
        markerscale=0.7,
        handletextpad=0.1,
        columnspacing=0.7,
        borderaxespad=0.2,
        fontsize=7,
        labelcolor=MUTED,
    )


def findings(study: Study) -> Iterator[Finding]:
    """The two heads that attend most alike."""
    table = study.tables.get("clusters")
    if table is None or not table["twin_distance"].notna().any():
        return
    pairs = [
        (row, row | {"layer": row["twin_layer"], "head": row["twin_head"]})
        for row in table[table["twin_distance"].notna()]
        .sort_values("twin_distance", kind="stable")
        .to_dict("records")
    ]
    pairs = [
        pair for pair in pairs if len({head_of(study, _place(one)) for one in pair}) == 2
    ]  # not one shared head
    if not pairs:
        return
    row, other = pairs[0]
    sentence = f"The two heads that attend most alike, {row['twin_distance']:.2g} nats apart, are"
    heads = tuple(
        Measured(address_of(study, one), math.nan, math.nan, math.nan) for one in (row, other)
    )
    yield Finding("", sentence, heads, topic="twins")


def _place(row: dict[Any, Any]) -> Place:
    return str(row["stack"]), int(row["layer"]), int(row["head"])


SECTION = Section(figures={46: ClusterMap}, findings={110: findings})
