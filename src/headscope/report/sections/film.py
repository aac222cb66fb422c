"""Heads over a training: statistics by step, a line a head; and the main role of every head at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from headscope.report.drawing.palette import INK, MISSING, MUTED, RULE
from headscope.report.drawing.sheet import Panels, open_sheet
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import SEQUENTIAL, draw_legend, name_blocks
from headscope.report.finding import Finding
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.scale import scale_of
from headscope.report.section import Fact, Section
from headscope.report.sections.roles import family_handles
from headscope.report.shared_heads import HeadKey, count_heads, count_text, keys_of
from headscope.report.study_access import entry_of, model_name, stacks_of
from headscope.report.text import plain
from headscope.study.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CHANGES, MOST_FIRSTS = 4, 2  # told in one sentence
CALLED = {"position": "positional", "special tokens": "special-token", "relation": "relational"}

FIRST = (
    *("previous", "next", "self", "cls", "sep", "punctuation"),
    *("entropy", "confidence-content", "positional-share", "special"),
)
MOST_PANELS, ACROSS = 12, 4
PANELS = Panels(
    wide=1.5, tall=1.25, left=0.5, right=0.2, bottom=0.85, above=0.35, gap_x=0.48, gap_y=0.5
)
PALEST, DARKEST = 0.3, 0.72  # of lines: legible on a pale page and on a dark one
ROW, WIDTH, LEFT, RIGHT, BOTTOM = 0.11, 6.4, 0.95, 0.2, 0.97


class StatisticsByStep(StackFigure):
    """Small multiples: one panel a statistic, one line a head, coloured by layer."""

    stem = "film"
    table = "film"
    title = "Heads over training"
    caption = (
        "Each panel is a statistic, each line a head from the first checkpoint to the last, pale for the lowest layer "
        "and dark for the highest. Steps are spaced by their logarithm; 0 is the model before any training."
    )

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        return stacks_of(study) if cls.table in study.tables else []

    @classmethod
    def for_study(cls, study: Study) -> Iterable[StackFigure]:
        """Statistics, then roles, stack by stack."""
        for stack in cls.stacks(study):
            yield cls(stack)
            yield RolesByStep(stack)

    def draw(self, study: Study) -> Figure:
        table = study.tables["film"].query("stack == @self.stack")
        losses = _losses(study)
        panels = [*(["loss"] if losses else []), *_chosen(table)]
        subtitle = (
            f"{model_name(study)}, {plain(self.stack)} · a line is a head ·"
            f" {table['step'].nunique()} checkpoints"
        )
        across, down = min(ACROSS, len(panels)), -(-len(panels) // ACROSS)
        steps = sorted(table["step"].unique())
        with PANELS.open(self.title, subtitle, down, across) as sheet:
            for i, name in enumerate(panels):
                axes = sheet.add_panel(*divmod(i, ACROSS))
                if name == "loss":
                    axes.plot(*zip(*losses, strict=True), color=INK, linewidth=1.2)
                    axes.set_title("held-out loss, nats", fontweight="bold")
                else:
                    _draw_heads(axes, table[table["statistic"] == name], name)
                _by_steps(axes, steps, is_lowest=i + ACROSS >= len(panels))
            _draw_layers(
                sheet.figure, sorted(table["layer"].unique()), sheet.point(PANELS.left, 0)[0]
            )
        return sheet.figure


class RolesByStep(StackFigure):
    """A row for every head, its main role at each checkpoint."""

    stem = "film-roles"
    table = "film_roles"
    title = "Roles over training"
    caption = (
        "A row for every head, layer by layer; from left to right the checkpoints of the training. The colour is the "
        "head's main role at that step, grey where no rule holds."
    )

    def applies(self, study: Study) -> bool:
        return self.table in study.tables

    def draw(self, study: Study) -> Figure:
        table = study.tables["film_roles"].query("stack == @self.stack")
        heads = sorted(key[1:] for key in keys_of(table))
        steps = sorted(table["step"].unique().tolist())
        families = {step: _families(study, table[table["step"] == step]) for step in steps}
        shown = {family for at_step in families.values() for family in at_step.values()}
        subtitle = f"{model_name(study)}, {plain(self.stack)} · {len(heads)} heads, {len(steps)} checkpoints"
        body = max(1.4, ROW * len(heads))
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.15) as sheet:
            axes = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            for row, head in enumerate(heads):
                for column, step in enumerate(steps):
                    colour = FAMILIES.get(families[step].get(head, ""), MISSING)
                    corner = (column + 0.02, row + 0.06)
                    axes.add_patch(Rectangle(corner, 0.96, 0.88, facecolor=colour, linewidth=0))
            axes.set(xlim=(0, len(steps)), ylim=(len(heads), 0), xlabel="step")
            axes.set_xticks(np.arange(len(steps)) + 0.5, [str(step) for step in steps])
            name_blocks(axes, [f"layer {layer}" for layer, _ in heads])
            axes.tick_params(length=0, pad=3)
            axes.spines[:].set_visible(False)
            handles = family_handles([name for name in FAMILIES if name in shown])
            _legend(sheet.figure, handles, LEFT / WIDTH)
        return sheet.figure


def _chosen(table: pd.DataFrame) -> list[str]:
    """The statistics with a panel: those that tell most first, as many as there is room for."""
    there = [str(name) for name in dict.fromkeys(table[table["value"].notna()]["statistic"])]
    told = [name for name in FIRST if name in there]
    return [*told, *(name for name in there if name not in told)][:MOST_PANELS]


def _losses(study: Study) -> list[tuple[float, float]]:
    """(step, held-out loss) where the training wrote them down."""
    rows = entry_of(study.record, "film", "losses")
    rows = rows if isinstance(rows, list) else []
    return [(float(row["step"]), float(row["loss"])) for row in rows]


def _draw_heads(axes: Axes, table: pd.DataFrame, name: str) -> None:
    deepest = max(int(table["layer"].max()), 1)
    for (layer, _), rows in table.sort_values("step").groupby(["layer", "head"]):
        colour = _of_layer(layer, deepest)
        axes.plot(rows["step"], rows["value"], color=colour, linewidth=1.0, alpha=0.9)
    scale = scale_of(name, table["value"].to_numpy())
    unit = "" if scale.kind == "share" else scale.unit.partition(",")[0]
    title = plain(f"{name}, {unit}" if unit else name, 24)  # no wider than its panel
    axes.set_title(title, fontweight="bold")
    if scale.low == 0 and name != "entropy":
        axes.set_ylim(bottom=0)


def _of_layer(layer: Any, deepest: int) -> Any:
    return SEQUENTIAL(PALEST + (DARKEST - PALEST) * int(layer) / deepest)


def _by_steps(axes: Axes, steps: list[int], *, is_lowest: bool) -> None:
    """Steps by their logarithm, with room for 0."""
    first = next((step for step in steps if step > 0), 1)
    axes.set_xscale("symlog", linthresh=first, linscale=0.5)
    axes.set_xlim(0, steps[-1])
    shown = [0, first, *([steps[-1]] if steps[-1] > first else [])]
    axes.set_xticks(shown, [str(step) for step in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    axes.tick_params(colors=RULE, labelcolor=MUTED, labelsize=6.5)
    axes.title.set_fontsize(7.5)
    if is_lowest:
        axes.set_xlabel("step")


def _draw_layers(fig: Figure, layers: list[int], left: float) -> None:
    deepest = max(max(layers), 1)
    few = layers if len(layers) <= 8 else [layers[0], layers[len(layers) // 2], layers[-1]]
    colours = {f"layer {layer}": _of_layer(layer, deepest) for layer in few}
    handles = {name: Line2D([], [], color=colours[name], linewidth=2) for name in colours}
    _legend(fig, handles, left)


def _legend(fig: Figure, handles: Mapping[str, Artist], left: float) -> None:
    draw_legend(fig, handles, (left, 0.0), ncols=5, handlelength=1.2, borderaxespad=0.4)


def _families(study: Study, roles: pd.DataFrame) -> dict[tuple[int, int], str]:
    """The family of each head's main role among these."""
    at_step = _with_roles(study, roles)
    return {
        place[1:]: family_of(of_head[0].name, at_step)[0]
        for place, of_head in roles_by_head(at_step).items()
    }


def _with_roles(study: Study, roles: pd.DataFrame) -> Study:
    """The study with the roles of one checkpoint."""
    relations = {name: table for name, table in study.tables.items() if name == "relations"}
    return Study(study.heads, {}, study.record, {"roles": roles, **relations})


def findings(study: Study) -> Iterator[Finding]:
    """From the first checkpoint to the last, by families of roles that heads have for sure."""
    table, every = study.tables.get("film_roles"), study.tables.get("film")
    if table is None or every is None or every["step"].nunique() < 2:
        return
    steps = sorted(int(step) for step in every["step"].unique())
    held = {step: _heads_by_family(study, table[table["step"] == step]) for step in steps}
    first, last = (set().union(*held[step].values()) for step in (steps[0], steps[-1]))
    sentence = (
        f"From step {steps[0]} to step {steps[-1]} of the training, heads with a role for sure went from "
        f"{count_heads(study, first)} to {count_text(study, last, keys_of(every), noun='')}"
    )
    changes = {
        name: tuple(count_heads(study, held[step].get(name, ())) for step in (steps[0], steps[-1]))
        for name in FAMILIES
    }
    told = sorted(
        (name for name in FAMILIES if any(changes[name])), key=lambda name: -max(changes[name])
    )
    called = {name: CALLED.get(name, name) for name in FAMILIES}
    if told:
        each = ("{} {} to {}".format(called[name], *changes[name]) for name in told[:MOST_CHANGES])
        sentence += f" ({', '.join(each)})"
    later = {
        name: next(step for step in steps if held[step].get(name))
        for name in told
        if not changes[name][0]
    }
    if later:
        named = (f"{called[name]} head appeared at step {step}" for name, step in later.items())
        sentence += f"; the first {', the first '.join(list(named)[:MOST_FIRSTS])}"
    yield Finding("", sentence, (), kind="training")


def _heads_by_family(study: Study, roles: pd.DataFrame) -> dict[str, set[HeadKey]]:
    """Which heads have a role of each family for sure, by these rows."""
    at_step = _with_roles(study, roles)
    found: dict[str, set[HeadKey]] = {}
    for place, of_head in roles_by_head(at_step).items():
        for role in of_head:
            if role.is_sure:
                found.setdefault(family_of(role.name, at_step)[0], set()).add(place)
    return found


SECTION = Section(
    figures={24: StatisticsByStep},
    findings={60: findings},
    facts={120: Fact("film", lambda record: "what its heads did over training")},
)
