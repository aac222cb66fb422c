"""Roles of heads: layers x heads, coloured by the main role; table and findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from headscope.report.drawing.palette import INK, MISSING
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import draw_legend, legible, number_cells, write_in_cell
from headscope.report.finding import (
    Finding,
    HeadEstimate,
    Headline,
    head_estimate,
    join_details,
    percent,
    percent_interval,
)
from headscope.report.head_cards import Role, roles_by_head, rule_label
from headscope.report.role_groups import FAMILIES, family_of, tendency_family
from headscope.report.section import Section
from headscope.report.shared_heads import HeadKey, count_heads, count_text, is_shared, keys_of
from headscope.report.study_access import model_name, shape_of, stacks_of
from headscope.report.table_cells import Cell, Part, head_cell, interval_cell, number_cell
from headscope.report.tendencies import RULE, tendencies
from headscope.report.text import plain
from headscope.study.schema.names import RoleName

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

MOST_ROLES = 5
CELL_WIDE, CELL_HIGH, CELL_SMALL = 0.52, 0.34, 0.22
MOST_WITH_TEXT = 16  # heads across; with more, only colours are shown
PALE = 0.35  # share of the family's colour in the cell of a tendency
LEFT, RIGHT, BOTTOM = 0.45, 0.2, 0.35
LEGEND_ROW, LEGEND_WIDE = 0.2, 1.25


class RoleMap(StackFigure):
    """A cell for each head of a stack, with the family of its main role."""

    stem = "roles"
    table = "roles"
    title = "The main role of each head"
    caption = (
        "Each cell is a head with its main role. If a head has several roles (marked with a dot), the first of these "
        "kinds is the main role: relations, antecedents and rare words; positions; kinds of tokens; diffuse or peaked "
        f"attention. Within a kind it is the strongest role. {RULE} Heads without a role or tendency are grey."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        with_role = {stack for stack, _, _ in roles_by_head(study)}
        return [stack for stack in stacks_of(study) if stack in with_role]

    def draw(self, study: Study) -> Figure:
        layers, heads = shape_of(study, self.stack)
        roles = roles_by_head(study)
        cells: dict[tuple[int, int], _RoleCell] = {
            key[1:]: _RoleCell(*family_of(of_head[0].name, study), is_several=len(of_head) > 1)
            for key, of_head in roles.items()
            if key[0] == self.stack
        }
        cells |= {
            key[1:]: _RoleCell(*tendency_family(tendency.name), is_pale=True)
            for key, tendency in tendencies(study).items()
            if key[0] == self.stack
        }
        has_text = heads <= MOST_WITH_TEXT
        wide, high = (CELL_WIDE, CELL_HIGH) if has_text else (CELL_SMALL, CELL_SMALL)
        present = {cell.family for cell in cells.values()}
        families = [name for name in FAMILIES if name in present]
        subtitle = f"{model_name(study)}, {plain(self.stack)} · rows are layers, columns are heads"
        width = max(LEFT + heads * wide + RIGHT, 5.2)
        across = max(int((width - LEFT) / LEGEND_WIDE), 1)
        legend = LEGEND_ROW * -(-(len(families) + 3) // across) + 0.1
        body = layers * high + BOTTOM + legend
        with open_sheet(self.title, subtitle, width, body, 0.12) as sheet:
            ax = sheet.add_axes(LEFT, 0, heads * wide, layers * high)
            _draw_cells(ax, (layers, heads), cells, has_text=has_text)
            dot = Line2D([], [], marker="o", color=INK, linestyle="none", markersize=3)
            handles = family_handles(families) | {"paler: tendency": _pale_handle()}
            handles |= {"several roles": dot}
            spaces = {"handlelength": 1.2, "handleheight": 1.0, "borderaxespad": 0.2}
            draw_legend(sheet.figure, handles, (LEFT / width, 0.0), ncols=across, **spaces)
            return sheet.figure


def family_handles(families: Iterable[str]) -> dict[str, Artist]:
    """Entries of a legend for families of roles, and for no role."""
    colours = {name: FAMILIES[name] for name in families} | {"no clear role": MISSING}
    return {name: Rectangle((0, 0), 1, 1, facecolor=colours[name]) for name in colours}


@dataclass(frozen=True)
class _RoleCell:
    """What a cell of the map shows: a family of roles and a short text, paler for a tendency."""

    family: str
    text: str
    is_several: bool = False
    is_pale: bool = False

    @property
    def colour(self) -> tuple[float, ...]:
        colour = FAMILIES[self.family]
        return _paler(colour) if self.is_pale else to_rgb(colour)


def _paler(colour: str) -> tuple[float, ...]:
    return tuple(
        PALE * part + (1 - PALE) * grey
        for part, grey in zip(to_rgb(colour), to_rgb(MISSING), strict=True)
    )


def _pale_handle() -> Artist:
    return Rectangle((0, 0), 1, 1, facecolor=_paler(FAMILIES["special tokens"]))


def _draw_cells(
    ax: Axes,
    shape: tuple[int, int],
    cells: dict[tuple[int, int], _RoleCell],
    *,
    has_text: bool,
) -> None:
    """cells: by (layer, head)."""
    layers, heads = shape
    for layer, head in product(range(layers), range(heads)):
        cell, corner = cells.get((layer, head)), (head + 0.03, layer + 0.04)
        colour = cell.colour if cell else to_rgb(MISSING)
        ax.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=colour, linewidth=0))
        if cell is None:
            continue
        ink = legible(colour)
        if has_text:
            size = 6.8 if len(cell.text) <= 5 else 5.6
            write_in_cell(ax, head + 0.5, layer + 0.54, cell.text, size, ink)
        if cell.is_several:
            size = 2.4 if has_text else 1.8
            ax.plot(head + 0.88, layer + 0.18, "o", color=ink, markersize=size)
    number_cells(ax.xaxis, heads, 1 if has_text else 4)
    number_cells(ax.yaxis, layers, 1 if layers <= 24 else 4)
    ax.set(xlim=(0, heads), ylim=(layers, 0), xlabel="head", ylabel="layer")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, pad=2)


def part(study: Study) -> Part | None:
    roles, stacks = roles_by_head(study), stacks_of(study)
    rows = []
    for key in sorted(roles, key=lambda key: (stacks.index(key[0]), key[1:])):
        for role in roles[key]:
            below = "" if role.is_sure else " (the interval extends below the threshold)"
            value = interval_cell(role.value, role.low, role.high), number_cell(role.baseline)
            rule = Cell(f"{plain(rule_label(role.rule))}{below}", role.rule)
            rows.append([head_cell(study, key), Cell(role.name, role.name), *value, rule])
    note = (
        f"{len(roles)} of {len(keys_of(study.heads))} heads have a role; it is clear if the interval does not extend "
        "below the threshold. The last column is the rule that assigned it. "
        "A head can have several roles, each on its own row. Click a head to see examples from the texts."
    )
    columns = ("head", "role", "value", "baseline", "rule")
    return Part("roles", "What each head does", note, columns, rows, words={1, 4})


def findings(study: Study) -> Iterator[Finding]:
    """The number of heads with each clear role: the whole interval is beyond the threshold of the role's rule."""
    roles = roles_by_head(study)
    heads = keys_of(study.heads)
    if "roles" not in study.tables or not heads:
        return
    # Each head is counted once, with its main role, so that the numbers add up. Clear roles come first.
    sure = {key: of_head[0] for key, of_head in roles.items() if of_head[0].is_sure}
    if not sure:
        none = f"None of the {count_heads(study, heads)} heads has a clear role"
        yield Finding("", none, (), kind="roles", is_null=True)
        return
    places_of: dict[str, list[HeadKey]] = defaultdict(list)
    for key, role in sure.items():
        places_of[role.name].append(key)
    ranked = sorted(
        places_of.items(), key=lambda item: (-count_heads(study, item[1]), -len(item[1]))
    )
    counts = [
        f"{_many(study, places)} {name.replace(': ', ' ')}{_threshold([sure[key] for key in places])}"
        for name, places in ranked[:MOST_ROLES]
    ]
    if others := [key for _, places in ranked[MOST_ROLES:] for key in places]:
        counts.append(f"{_many(study, others)} with other roles")
    names = " and ".join([", ".join(counts[:-1]), counts[-1]]) if len(counts) > 1 else counts[0]
    (stack, layer, head), best = max(sure.items(), key=lambda item: item[1].strength)
    row = {"stack": stack, "layer": layer, "head": head, **vars(best)}
    at = " at each site" if is_shared(study) else ""
    many = count_text(study, sure, heads)
    by_value = (
        f" The map also counts heads of which only the value is above it: {count_heads(study, roles)} in total."
        if len(roles) > len(sure)
        else ""
    )
    verb = "has" if count_heads(study, sure) == 1 else "have"
    sentence = f"{many} {verb} a clear role{at}"
    after = (
        f" is the clearest ({best.name}). Heads by main role: {names}. A role is clear if its whole 95 % interval "
        f"is above the threshold of the role.{by_value}"
    ).removesuffix(".")
    clearest = head_estimate(study, row, "value")
    strength = clearest.strength(best.threshold)
    yield Finding(
        "",
        sentence,
        (clearest,),
        kind="roles",
        strength=strength,
        after=after,
        headline=_headline(study, sure, many),
    )


# By role: words before and after the value as a percentage
DOES: Mapping[str, tuple[str, str]] = {
    "previous token": ("gives", "of its attention to the previous token"),
    "next token": ("gives", "of its attention to the next token"),
    "same token": ("gives", "of its attention to the token itself"),
    "classification token": ("gives", "of its attention to the classification token"),
    "separators": ("gives", "of its attention to separators"),
    "special tokens": ("gives", "of its attention to special tokens"),
    "punctuation": ("gives", 'of its attention to "." and ","'),
    "sink": ("gives", "of its attention to a single token of each text"),
    "diffuse": ("spreads its attention widely: its entropy is", "of the maximum"),
    "peaked": ("attends to single tokens: its largest weight on a content token is", "on average"),
    "coreferential": ("finds the antecedent of", "of the mentions"),
    "rare words": ("attends most to one of the two rarest words in", "of the sentences"),
}


def _headline(study: Study, sure: Mapping[HeadKey, Role], many: str) -> Headline:
    """The clearest role in one sentence. Relations and antecedents are left out: they have findings of their own."""

    def rank(item: tuple[HeadKey, Role]) -> tuple[bool, bool, float]:
        role = item[1]
        is_vague = role.name in ("diffuse", "peaked", "special tokens", "block")
        return (
            family_of(role.name, study)[0] not in ("relation", "coreference"),
            not is_vague,
            role.strength,
        )

    verb = "has" if count_heads(study, sure) == 1 else "have"
    (stack, layer, head), role = max(sure.items(), key=rank)
    if not rank(((stack, layer, head), role))[0]:
        return Headline("", many, f"{verb} a clear role")
    row = {"stack": stack, "layer": layer, "head": head, **vars(role)}
    estimate: HeadEstimate = head_estimate(study, row, "value")
    parsed = RoleName.parse(role.name)
    if parsed.is_positional:
        before, after = "has its largest weight in", f"of the positions at offset {parsed.detail}"
    elif role.name in DOES:
        before, after = DOES[role.name]
    else:
        before, after = f"has the role “{role.name}”:", ""
    return Headline(
        before,
        percent(estimate.value),
        after,
        join_details(
            percent_interval(estimate.low, estimate.high),
            f"in all, {many} {verb} a clear role (the whole interval is above the threshold)",
        ),
        estimate.head,
    )


def _threshold(roles: list[Role]) -> str:
    """` (above 0.6)`: the threshold of the role; empty if it differs between heads, as for relations."""
    thresholds = {role.threshold for role in roles}
    return f" (above {thresholds.pop():.3g})" if len(thresholds) == 1 else ""


def _many(study: Study, places: list[HeadKey]) -> str:
    """`4`, or `1 (8 sites)` if layers share their heads."""
    if not is_shared(study):
        return str(len(places))
    return f"{count_heads(study, places)} ({len(places)} {'site' if len(places) == 1 else 'sites'})"


SECTION = Section(figures={40: RoleMap}, parts={10: part}, findings={70: findings})
