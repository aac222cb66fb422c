"""What does each head do? Layers x heads, coloured by the main role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from headscope.report.drawing.palette import INK, MISSING, MUTED
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import _legible, headed, heading_height, style
from headscope.report.finding import Finding, measured_in, strength_of
from headscope.report.head_cards import Role, roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.section import Section
from headscope.report.shared_heads import Place, counted, is_shared, number_of
from headscope.report.study_access import model_name, shape_of, stacks_of
from headscope.report.table_cells import Cell, Part, head_cell, measured, number
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

MOST_ROLES = 5

CELL_WIDE, CELL_HIGH, CELL_SMALL = 0.52, 0.34, 0.22
MOST_WITH_TEXT = 16  # heads across; of more only the colours are shown
LEFT, RIGHT, BOTTOM = 0.45, 0.2, 0.35
LEGEND_ROW, LEGEND_WIDE = 0.2, 1.25


class RoleMap(StackFigure):
    stem = "roles"
    table = "roles"
    title = "The main role of each head"
    caption = (
        "Each cell is a head with the one of its roles that says most: relations, antecedents and rare words before "
        "positions, these before kinds of tokens, how broad or sure attention is last; of several alike the strongest. "
        "A dot marks heads with several roles, grey those for which no rule holds."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        with_role = {stack for stack, _, _ in roles_by_head(study)}
        return [stack for stack in stacks_of(study) if stack in with_role]

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


def part(study: Study) -> Part | None:
    roles = roles_by_head(study)
    rows = [
        [
            head_cell(study, place),
            Cell(role.name, role.name),
            measured(role.value, role.low, role.high),
            number(role.baseline),
            Cell(
                plain(role.rule)
                if role.is_sure
                else f"{plain(role.rule)} (the interval reaches below)",
                role.rule,
            ),
        ]
        for place, of_head in sorted(
            roles.items(), key=lambda item: (stacks_of(study).index(item[0][0]), item[0][1:])
        )
        for role in of_head
    ]
    heads = study.heads[["stack", "layer", "head"]].drop_duplicates()
    note = f"{len(roles)} of {len(heads)} heads have a role by the rules named here, several heads more than one. "
    note += "A head's card shows it at work: choose a head."
    columns = ("head", "role", "value", "baseline", "rule")
    return Part("roles", "What each head does", note, columns, rows, words={1, 4})


def findings(study: Study) -> Iterator[Finding]:
    """How many heads have which role for sure: the whole interval beyond where the role's rule begins."""
    every = roles_by_head(study)
    sure = {place: [role for role in of if role.is_sure] for place, of in every.items()}
    sure = {place: of for place, of in sure.items() if of}
    heads = list(
        study.heads[["stack", "layer", "head"]].drop_duplicates().itertuples(index=False, name=None)
    )
    if "roles" not in study.tables or not heads:
        return
    if not sure:
        many = number_of(study, heads)
        yield Finding(
            "",
            f"No evidence that any of the {many} heads has a role by the rules",
            (),
            kind="roles",
        )
        return
    main = {place: of[0] for place, of in sure.items()}  # one a head: the numbers add up
    counts: dict[str, list[Place]] = {}
    for place, role in main.items():
        counts.setdefault(role.name, []).append(place)
    ranked = sorted(counts.items(), key=lambda item: (-number_of(study, item[1]), -len(item[1])))
    told = [
        f"{_many(study, places)} {name.replace(': ', ' ')}{_threshold([main[place] for place in places])}"
        for name, places in ranked[:MOST_ROLES]
    ]
    if others := [place for _, places in ranked[MOST_ROLES:] for place in places]:
        told.append(f"{_many(study, others)} with other roles")
    listed = " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]
    place, best = max(main.items(), key=lambda item: item[1].strength)
    row = {"stack": place[0], "layer": place[1], "head": place[2], **vars(best)}
    at = " at each site" if is_shared(study) else ""
    others_too = (
        f"; {number_of(study, every)} by the value alone, as the map counts"
        if len(every) > len(sure)
        else ""
    )
    sentence = (
        f"{counted(study, sure, heads)} have a role for sure (the whole interval is beyond the rule's threshold"
        f"{others_too}), by their main role{at}: {listed}; the clearest, {best.name}, is"
    )
    strength = strength_of(best.value, best.low, best.high, best.threshold)
    yield Finding(
        "", sentence, (measured_in(study, row, "value"),), kind="roles", strength=strength
    )


def _threshold(roles: list[Role]) -> str:
    """` (above 0.6)`: where the role begins; nothing if that differs from head to head, as for relations."""
    thresholds = {role.threshold for role in roles}
    return f" (above {thresholds.pop():.3g})" if len(thresholds) == 1 else ""


def _many(study: Study, places: list[Place]) -> str:
    """`4`, or `1 (8 sites)` where layers share their heads."""
    if not is_shared(study):
        return str(len(places))
    return f"{number_of(study, places)} ({len(places)} {'site' if len(places) == 1 else 'sites'})"


SECTION = Section(figures={40: RoleMap}, parts={10: part}, findings={70: findings})
