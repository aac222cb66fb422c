"""What does each head do? Layers x heads, coloured by the main role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from headscope.report.drawing.data_source import Source, table
from headscope.report.drawing.palette import INK, MISSING, MUTED
from headscope.report.drawing.style import _legible, headed, heading_height, style
from headscope.report.head_cards import Role, roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.study_access import model_name, shape_of, stacks_of
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 40
CELL_WIDE, CELL_HIGH, CELL_SMALL = 0.52, 0.34, 0.22
MOST_WITH_TEXT = 16  # heads across; of more only the colours are shown
LEFT, RIGHT, BOTTOM = 0.45, 0.2, 0.35
LEGEND_ROW, LEGEND_WIDE = 0.2, 1.25


@dataclass(frozen=True)
class RoleMap:
    stack: str
    name: str
    title: str = "The main role of each head"
    caption: str = (
        "Each cell is a head with the one of its roles that says most: relations, antecedents and rare words before "
        "positions, these before kinds of tokens, how broad or sure attention is last; of several alike the strongest. "
        "A dot marks heads with several roles, grey those for which no rule holds."
    )
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return any(stack == self.stack for stack, _, _ in roles_by_head(study))

    def source(self, study: Study) -> Source:
        return table("roles")

    def draw(self, study: Study) -> Figure:
        layers, heads = shape_of(study, self.stack)
        roles = {
            place[1:]: of_head
            for place, of_head in roles_by_head(study).items()
            if place[0] == self.stack
        }
        has_text = heads <= MOST_WITH_TEXT
        wide, high = (CELL_WIDE, CELL_HIGH) if has_text else (CELL_SMALL, CELL_SMALL)
        shown = {place: family_of(of_head[0].name, study) for place, of_head in roles.items()}
        families = [
            name for name in FAMILIES if any(family == name for family, _ in shown.values())
        ]
        subtitle = f"{model_name(study)}, {plain(self.stack)} · layers down, heads across"
        with style():
            width = max(LEFT + heads * wide + RIGHT, 5.2)
            across = max(int((width - LEFT) / LEGEND_WIDE), 1)
            legend = LEGEND_ROW * -(-(len(families) + 2) // across) + 0.1
            top = heading_height(width, subtitle) + 0.12
            height = top + layers * high + BOTTOM + legend
            fig = headed(width, height, self.title, subtitle)
            bounds = (
                LEFT / width,
                (BOTTOM + legend) / height,
                heads * wide / width,
                layers * high / height,
            )
            ax = fig.add_axes(bounds)
            _draw_cells(ax, (layers, heads), roles, shown, has_text=has_text)
            _draw_legend(fig, families, across, LEFT / width)
            return fig


def drawings(study: Study) -> Iterator[RoleMap]:
    for stack in stacks_of(study):
        yield RoleMap(stack, f"roles-{slug(stack)}")


def _draw_cells(
    ax: Axes,
    shape: tuple[int, int],
    roles: dict[tuple[int, int], list[Role]],
    shown: dict[tuple[int, int], tuple[str, str]],
    *,
    has_text: bool,
) -> None:
    layers, heads = shape
    for layer in range(layers):
        for head in range(heads):
            family, text = shown.get((layer, head), ("", ""))
            colour = FAMILIES.get(family, MISSING)
            ax.add_patch(
                Rectangle((head + 0.03, layer + 0.04), 0.94, 0.92, facecolor=colour, linewidth=0)
            )
            ink = _legible(to_rgb(colour)) if family else MUTED
            if has_text and family:
                size = 6.8 if len(text) <= 5 else 5.6
                ax.text(
                    head + 0.5,
                    layer + 0.54,
                    text,
                    ha="center",
                    va="center",
                    fontsize=size,
                    color=ink,
                )
            if len(roles.get((layer, head), ())) > 1:
                ax.plot(
                    head + 0.88, layer + 0.18, "o", color=ink, markersize=2.4 if has_text else 1.8
                )
    step = 1 if has_text else 4
    ax.set_xticks([i + 0.5 for i in range(0, heads, step)], [str(i) for i in range(0, heads, step)])
    every = 1 if layers <= 24 else 4
    ax.set_yticks(
        [i + 0.5 for i in range(0, layers, every)], [str(i) for i in range(0, layers, every)]
    )
    ax.set(xlim=(0, heads), ylim=(layers, 0), xlabel="head", ylabel="layer")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, pad=2)


def _draw_legend(fig: Figure, families: list[str], columns: int, left: float) -> None:
    named = [*((name, FAMILIES[name]) for name in families), ("no rule holds", MISSING)]
    handles: list[Rectangle | Line2D] = [
        Rectangle((0, 0), 1, 1, facecolor=colour) for _, colour in named
    ]
    handles.append(Line2D([], [], marker="o", color=INK, linestyle="none", markersize=3))
    labels = [*(name for name, _ in named), "several roles"]
    fig.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(left, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=7.5,
        handlelength=1.2,
        handleheight=1.0,
        borderaxespad=0.2,
        borderpad=0.0,
    )
