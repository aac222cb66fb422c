"""Similarity of heads: a plane in which near heads attend alike, by layer, role and cluster, after Clark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgba

from headscope.report.drawing.palette import INK, MISSING, MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import SEQUENTIAL, legible
from headscope.report.finding import Finding, HeadEstimate, address_of
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.section import Section, needs_table
from headscope.report.shared_heads import head_key, head_of
from headscope.report.study_access import entry_of, model_name, stack_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

NEEDED = {"stack", "layer", "head", "x", "y", "cluster", "twin_layer", "twin_head"}
MOST_LABELS = 160  # heads that fit on a plane with their names
COLOURS = SERIES[
    1:
]  # the page changes the shade of the first colour, so a label on it might not be legible
SHAPES = {"o": 1.0, "s": 0.9, "D": 0.78}  # if colours are used again; scaled to look equally wide
PANEL, GAP, SIDE, LEGEND_ROW = 4.3, 0.25, 0.15, 0.19
MARK, SMALL_MARK = 0.165, 0.065  # inches across
MARGIN = 0.06  # around the marks, as a share of the extent
Panel = Literal["layer", "role", "cluster"]
BY_CLUSTER = (
    "The same positions, coloured by cluster. The clusters are hierarchical (average linkage) and use the distances "
    "between heads, not the positions in this figure. Their number has the largest silhouette, which is in the "
    "subtitle: near 0 the clusters are not sharp."
)


class ClusterMap(StackFigure):
    """Heads of a stack as marks in a plane, once for each grouping."""

    stem = "clusters"
    table = "clusters"
    panels: tuple[Panel, ...] = ("layer", "cluster")
    title = "Similar heads"
    caption = (
        "Each mark is a head, written layer.head. Heads that are close to each other attend similarly. A grey line "
        "leads from each head to its most similar head. Positions are from multidimensional scaling of the square "
        "root of the Jensen–Shannon divergence between rows of attention. Marks that would overlap are moved apart."
    )

    @classmethod
    def stacks(cls, study: Study) -> list[str]:
        """The stacks of clusters.csv that have two heads or more, in their usual order."""
        table = study.tables.get("clusters")
        if table is None or not set(table) >= NEEDED:
            return []
        sizes = table.dropna(subset=["x", "y"])["stack"].value_counts()
        return sorted((str(stack) for stack, count in sizes.items() if count > 1), key=stack_order)

    @classmethod
    def for_study(cls, study: Study) -> Iterable[ClusterMap]:
        """By layer and role, then by cluster; by layer and cluster if the study has no roles."""
        for stack in cls.stacks(study):
            by_layer, by_cluster = cls(stack), cls(stack)
            yield by_layer
            if "roles" in study.tables:
                by_layer.panels = ("layer", "role")
                by_cluster.name, by_cluster.panels = f"{by_layer.name}-found", ("cluster",)
                by_cluster.title = "Clusters of heads that attend alike"
                by_cluster.caption = BY_CLUSTER
                yield by_cluster

    def draw(self, study: Study) -> Figure:
        heads = study.tables["clusters"].query("stack == @self.stack")
        heads = heads.sort_values(["layer", "head"], ignore_index=True)
        heads[["x", "y"]] = _apart(heads[["x", "y"]].to_numpy(dtype=float), _mark(heads))
        groups = {panel: GROUPS[panel](heads, study) for panel in self.panels}
        width = len(groups) * (PANEL + GAP) - GAP + 2 * SIDE
        columns = {panel: _columns(of_panel) for panel, of_panel in groups.items()}
        rows = max(-(-len(of_panel) // columns[panel]) for panel, of_panel in groups.items())
        body = PANEL + LEGEND_ROW * rows + 0.1 + SIDE
        with open_sheet(self.title, self._subtitle(study), width, body, 0.3) as sheet:
            for i, (panel, of_panel) in enumerate(groups.items()):
                ax = sheet.add_axes(SIDE + i * (PANEL + GAP), 0, PANEL, PANEL)
                _draw_plane(ax, heads, of_panel)
                _draw_legend(ax, columns[panel])
                ax.set_title(f"by {panel}", fontweight="bold")
            return sheet.figure

    def _subtitle(self, study: Study) -> str:
        """How to read it, with the recorded measures of how well layers and clusters separate heads."""
        ratio, probability, explained, silhouette = (
            entry_of(study.record, "clusters", self.stack, key)
            for key in ("ratio", "probability", "explained", "silhouette")
        )
        text = f"{model_name(study)}, {self.stack} · a mark is a head (layer.head); near heads are similar"
        text += "; a grey line leads to the most similar head"
        if "layer" in self.panels and isinstance(ratio, float) and isinstance(probability, float):
            text += f" · mean divergence within a layer is {ratio:.2f} of that between layers (p = {probability:.2g})"
        if "layer" in self.panels and isinstance(explained, float):
            text += f" · the two axes explain {explained:.0%} of the variance"
        if "cluster" in self.panels and isinstance(silhouette, float):
            text += f" · silhouette {silhouette:.2f}"
        return text


@dataclass(frozen=True)
class _Group:
    """Heads that have the same colour and shape."""

    label: str
    colour: str
    shape: str
    members: pd.Series[bool]

    @property
    def ink(self) -> str:
        """The colour of names on the marks; the page has its own shades of grey and of the ink on it."""
        return INK if self.colour == MISSING else legible(to_rgba(self.colour))


def _by_layer(heads: pd.DataFrame, study: Study) -> list[_Group]:
    layers = sorted(heads["layer"].unique())
    shades = np.linspace(0.15, 1.0, len(layers))
    every = max(len(layers) // 12, 1)  # in a deep model only some layers are labelled
    groups = []
    for i, (layer, shade) in enumerate(zip(layers, shades, strict=True)):
        label = f"layer {layer}" if i == 0 else str(layer) if i % every == 0 else ""
        groups.append(_Group(label, to_hex(SEQUENTIAL(shade)), "o", heads["layer"] == layer))
    return groups


def _by_cluster(heads: pd.DataFrame, study: Study) -> list[_Group]:
    groups = []
    for cluster in sorted(heads["cluster"].unique()):
        members = heads["cluster"] == cluster
        colour = COLOURS[cluster % len(COLOURS)]
        shape = list(SHAPES)[cluster // len(COLOURS) % len(SHAPES)]
        label = f"cluster {cluster}" if cluster == 0 else str(cluster)
        groups.append(_Group(f"{label} ({members.sum()})", colour, shape, members))
    return groups


def _by_role(heads: pd.DataFrame, study: Study) -> list[_Group]:
    """By the family of a head's main role, in the colours of the map of roles and in different shapes."""
    roles = roles_by_head(study)
    keys = list(map(head_key, heads.to_dict("records")))
    families = pd.Series(
        [family_of(roles[key][0].name, study)[0] if key in roles else "" for key in keys]
    )
    groups = []
    for i, (name, colour) in enumerate([("", MISSING), *FAMILIES.items()]):
        members = families == name
        if members.any():
            label = f"{name or 'no rule holds'} ({members.sum()})"
            groups.append(_Group(label, colour, list(SHAPES)[i % len(SHAPES)], members))
    return groups[1:] + groups[:1] if (families == "").any() else groups


GROUPS: dict[Panel, Callable[[pd.DataFrame, Study], list[_Group]]] = {
    "layer": _by_layer,
    "role": _by_role,
    "cluster": _by_cluster,
}


def _mark(heads: pd.DataFrame) -> float:
    """Inches across a mark."""
    return MARK if len(heads) <= MOST_LABELS else SMALL_MARK


def _apart(points: NDArray[np.float64], mark: float) -> NDArray[np.float64]:
    """The points [head, 2], moved apart until marks hardly cover each other."""
    least = mark * (1 + 2 * MARGIN) * max(np.ptp(points, axis=0).max(), 1e-9) / PANEL
    # Points at one place start in different directions.
    angle = np.arange(len(points)) * 2.4
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    moved: NDArray[np.float64] = points + 1e-3 * least * directions
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
        mark: dict[str, Any] = {"color": group.colour, "marker": group.shape}
        mark |= {"edgecolors": MUTED, "linewidths": 0.3, "label": group.label or "_", "zorder": 2}
        ax.scatter(some["x"], some["y"], s=(SHAPES[group.shape] * across) ** 2, **mark)
        middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 3}
        for row in some.to_dict("records") if has_labels else ():
            name = f"{row['layer']}.{row['head']}"
            size = 5.6 if len(name) <= 3 else 4.8
            ax.text(row["x"], row["y"], name, fontsize=size, color=group.ink, **middle)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(MARGIN)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set(visible=True, color=RULE)


def _draw_twins(ax: Axes, heads: pd.DataFrame) -> None:
    """A line from each head to the nearest head; two heads that are nearest to each other share one."""
    rows = heads.to_dict("records")
    points = {(row["layer"], row["head"]): (row["x"], row["y"]) for row in rows}
    twins = [((row["layer"], row["head"]), (row["twin_layer"], row["twin_head"])) for row in rows]
    for head, twin in sorted({(min(pair), max(pair)) for pair in twins if pair[1] in points}):
        (x, y), (u, v) = points[head], points[twin]
        ax.plot([x, u], [y, v], color=INK, linewidth=0.6, alpha=0.35, zorder=1)


def _columns(groups: list[_Group]) -> int:
    """The number of labels of a legend that fit side by side under a panel."""
    labels = [group.label for group in groups if group.label]
    wide = [0.3 + 0.062 * len(label) for label in labels]  # inches: a mark, and letters of 7 points
    return len(labels) if sum(wide) <= PANEL else max(int(PANEL / max(wide)), 1)


def _draw_legend(ax: Axes, columns: int) -> None:
    """Under the panel, to be read row by row."""
    handles, labels = ax.get_legend_handles_labels()
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.01), "ncols": columns}
    options |= {"fontsize": 7, "labelcolor": MUTED, "frameon": False, "markerscale": 0.7}
    options |= {"handletextpad": 0.1, "columnspacing": 0.7, "borderaxespad": 0.2}
    ax.legend([handles[i] for i in order], [labels[i] for i in order], **options)


@needs_table("clusters")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The two most similar heads. Two sites of one shared head do not count."""
    rows = table.dropna(subset="twin_distance").sort_values("twin_distance", kind="stable")
    for row in rows.to_dict("records"):
        pair = row, row | {"layer": row["twin_layer"], "head": row["twin_head"]}
        if len({head_of(study, head_key(head)) for head in pair}) == 2:
            sentence = f"The two most similar heads are {row['twin_distance']:.2g} nats apart"
            no_value = (math.nan, math.nan, math.nan)
            heads = tuple(HeadEstimate(address_of(study, head), *no_value) for head in pair)
            after = "; the distance is the Jensen–Shannon divergence of their attention"
            yield Finding("", sentence, heads, topic="similar heads", after=after)
            return


SECTION = Section(figures={46: ClusterMap}, findings={110: findings})
