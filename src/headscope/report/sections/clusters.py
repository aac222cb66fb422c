"""Which heads look alike? A plane in which near heads attend alike, by layer, role and cluster, after Clark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
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
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

NEEDED = {"stack", "layer", "head", "x", "y", "cluster", "twin_layer", "twin_head"}
MOST_LABELS = 160  # heads that fit on a plane with their names
COLOURS = SERIES[1:]  # of the first one the page has its own shade: a label might not be legible
SHAPES = {"o": 1.0, "s": 0.9, "D": 0.78}  # for three rounds of colours; widths that look alike
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
        heads = study.tables["clusters"].query("stack == @self.stack")
        heads = heads.sort_values(["layer", "head"], ignore_index=True)
        heads[["x", "y"]] = _apart(heads[["x", "y"]].to_numpy(dtype=float), _mark(heads))
        painted = {panel: GROUPS[panel](heads, study) for panel in self.panels}
        subtitle = (
            f"{model_name(study)}, {self.stack} · a mark is a head (layer.head), near means alike"
        )
        subtitle += "; a grey line leads to the head most like it"
        subtitle += _said_of_layers(study, self.stack) if "layer" in self.panels else ""
        subtitle += _said_of_clusters(study, self.stack) if "cluster" in self.panels else ""
        width = len(painted) * (PANEL + GAP) - GAP + 2 * SIDE
        columns = {panel: _columns(groups) for panel, groups in painted.items()}
        rows = max(-(-len(groups) // columns[panel]) for panel, groups in painted.items())
        body = PANEL + LEGEND_ROW * rows + 0.1 + SIDE
        with open_sheet(self.title, subtitle, width, body, 0.3) as sheet:
            for i, (panel, groups) in enumerate(painted.items()):
                ax = sheet.add_axes(SIDE + i * (PANEL + GAP), 0, PANEL, PANEL)
                _draw_plane(ax, heads, groups)
                _draw_legend(ax, columns[panel])
                ax.set_title(f"by {panel}", fontweight="bold")
            return sheet.figure


def _stacks(study: Study) -> list[str]:
    """The stacks of clusters.csv that have two heads or more, in their usual order."""
    table = study.tables.get("clusters")
    if table is None or not set(table) >= NEEDED:
        return []
    sizes = table.dropna(subset=["x", "y"])["stack"].value_counts()
    return sorted((str(stack) for stack, count in sizes.items() if count > 1), key=stack_order)


def _said_of_clusters(study: Study, stack: str) -> str:
    silhouette = entry_of(study.record, "clusters", stack, "silhouette")
    return f" · silhouette {silhouette:.2f}" if isinstance(silhouette, float) else ""


def _said_of_layers(study: Study, stack: str) -> str:
    """How much nearer heads of one layer are than others, and what the plane leaves out; empty where not recorded."""
    ratio, probability, explained = (
        entry_of(study.record, "clusters", stack, key)
        for key in ("ratio", "probability", "explained")
    )
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
        return INK if self.colour == MISSING else legible(to_rgba(self.colour))


def _by_layer(heads: pd.DataFrame, study: Study) -> list[_Group]:
    layers = sorted(heads["layer"].unique())
    shades = [to_hex(SEQUENTIAL(place)) for place in np.linspace(0.15, 1.0, len(layers))]
    every = max(len(layers) // 12, 1)  # of a deep model some layers are named
    labels = [str(layer) if i % every == 0 else "" for i, layer in enumerate(layers)]
    labels[0] = f"layer {labels[0]}"
    return [
        _Group(label, shade, "o", heads["layer"] == layer)
        for label, layer, shade in zip(labels, layers, shades, strict=True)
    ]


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


def _columns(groups: list[_Group]) -> int:
    """How many labels of a legend stand side by side under a panel."""
    labels = [group.label for group in groups if group.label]
    wide = [0.3 + 0.062 * len(label) for label in labels]  # inches: a mark, and letters of 7 points
    return len(labels) if sum(wide) <= PANEL else max(int(PANEL / max(wide)), 1)


def _draw_legend(ax: Axes, columns: int) -> None:
    """Under the panel, to be read row by row."""
    handles, labels = ax.get_legend_handles_labels()
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.01), "ncols": columns}
    text: dict[str, Any] = {"fontsize": 7, "labelcolor": MUTED, "frameon": False}
    spaces: dict[str, Any] = {"handletextpad": 0.1, "columnspacing": 0.7, "borderaxespad": 0.2}
    options = {**where, **text, **spaces}
    ax.legend([handles[i] for i in order], [labels[i] for i in order], markerscale=0.7, **options)


@needs_table("clusters")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The two heads that attend most alike, of those that are not one shared head."""
    known = table[table["twin_distance"].notna()].sort_values("twin_distance", kind="stable")
    for row in known.to_dict("records"):
        pair = row, row | {"layer": row["twin_layer"], "head": row["twin_head"]}
        if len({head_of(study, head_key(one)) for one in pair}) == 2:
            break
    else:
        return
    sentence = f"The two heads that attend most alike, {row['twin_distance']:.2g} nats apart, are"
    nan = math.nan
    heads = tuple(HeadEstimate(address_of(study, one), nan, nan, nan) for one in pair)
    yield Finding("", sentence, heads, topic="twins")


SECTION = Section(figures={46: ClusterMap}, findings={110: findings})
