"""Heads over a training: statistics by step, a line a head; and the main role of every head at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from headscope.report.drawing.palette import INK, MISSING, MUTED, RULE
from headscope.report.drawing.study_figure import StackFigure
from headscope.report.drawing.style import SEQUENTIAL, headed, heading_height, style
from headscope.report.finding import Finding
from headscope.report.head_cards import roles_by_head
from headscope.report.role_groups import FAMILIES, family_of
from headscope.report.scale import scale_of
from headscope.report.section import Fact, Section
from headscope.report.shared_heads import Place, counted, number_of
from headscope.report.study_access import model_name, recorded, stacks_of
from headscope.report.text import plain
from headscope.study.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CHANGES, MOST_FIRSTS = 4, 2  # told in one sentence
CALLED = {"position": "positional", "special tokens": "special-token", "relation": "relational"}

FIRST = (
    "previous",
    "next",
    "self",
    "cls",
    "sep",
    "punctuation",
    "entropy",
    "confidence-content",
    "positional-share",
    "special",
)
MOST_PANELS = 12
ACROSS, PANEL_WIDE, PANEL_HIGH, GAP_X, GAP_Y = 4, 1.5, 1.25, 0.48, 0.5
LEFT, RIGHT, BOTTOM = 0.5, 0.2, 0.85
PALEST, DARKEST = 0.3, 0.72  # of lines: legible on a pale page and on a dark one
ROW, STRIP_WIDE, STRIP_LEFT, STRIP_BOTTOM, LEGEND = 0.11, 6.4, 0.95, 0.55, 0.42


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
        with style():
            width = max(LEFT + across * (PANEL_WIDE + GAP_X) - GAP_X + RIGHT, 4.2)
            top = heading_height(width, subtitle) + 0.35
            height = top + down * (PANEL_HIGH + GAP_Y) - GAP_Y + BOTTOM
            fig = headed(width, height, self.title, subtitle)
            for place, name in enumerate(panels):
                x = LEFT + place % ACROSS * (PANEL_WIDE + GAP_X)
                y = height - top - PANEL_HIGH - place // ACROSS * (PANEL_HIGH + GAP_Y)
                axes = fig.add_axes(
                    (x / width, y / height, PANEL_WIDE / width, PANEL_HIGH / height)
                )
                if name == "loss":
                    axes.plot(*zip(*losses, strict=True), color=INK, linewidth=1.2)
                    axes.set_title("held-out loss, nats", fontweight="bold")
                else:
                    _draw_heads(axes, table[table["statistic"] == name], name)
                _by_steps(
                    axes, sorted(table["step"].unique()), is_lowest=place + ACROSS >= len(panels)
                )
            _draw_layers(fig, sorted(table["layer"].unique()), width)
        return fig


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
        heads = sorted(
            table[["layer", "head"]].drop_duplicates().itertuples(index=False, name=None)
        )
        steps = sorted(table["step"].unique().tolist())
        families = {step: _families(study, table[table["step"] == step]) for step in steps}
        there = [
            name for name in FAMILIES if any(name in one.values() for one in families.values())
        ]
        subtitle = f"{model_name(study)}, {plain(self.stack)} · {len(heads)} heads, {len(steps)} checkpoints"
        with style():
            top = heading_height(STRIP_WIDE, subtitle) + 0.15
            body = max(1.4, ROW * len(heads))
            height = top + body + STRIP_BOTTOM + LEGEND
            fig = headed(STRIP_WIDE, height, self.title, subtitle)
            low = (STRIP_BOTTOM + LEGEND) / height
            wide = (STRIP_WIDE - STRIP_LEFT - RIGHT) / STRIP_WIDE
            axes = fig.add_axes((STRIP_LEFT / STRIP_WIDE, low, wide, body / height))
            for row, head in enumerate(heads):
                for column, step in enumerate(steps):
                    colour = FAMILIES.get(families[step].get(head, ""), MISSING)
                    axes.add_patch(
                        Rectangle(
                            (column + 0.02, row + 0.06), 0.96, 0.88, facecolor=colour, linewidth=0
                        )
                    )
            axes.set(xlim=(0, len(steps)), ylim=(len(heads), 0), xlabel="step")
            axes.set_xticks(np.arange(len(steps)) + 0.5, [str(step) for step in steps])
            starts = [
                row for row, head in enumerate(heads) if row == 0 or head[0] != heads[row - 1][0]
            ]
            middles = [(a + b) / 2 for a, b in zip(starts, [*starts[1:], len(heads)], strict=True)]
            axes.set_yticks(middles, [f"layer {heads[row][0]}" for row in starts])
            axes.tick_params(length=0, pad=3)
            axes.spines[:].set_visible(False)
            for start in starts[1:]:
                axes.axhline(start, color=RULE, linewidth=0.8)
            _draw_families(fig, there)
        return fig


def _chosen(table: pd.DataFrame) -> list[str]:
    """The statistics with a panel: those that tell most first, as many as there is room for."""
    there = [str(name) for name in dict.fromkeys(table[table["value"].notna()]["statistic"])]
    told = [name for name in FIRST if name in there]
    return [*told, *(name for name in there if name not in told)][:MOST_PANELS]


def _losses(study: Study) -> list[tuple[float, float]]:
    """(step, held-out loss) where the training wrote them down."""
    rows = recorded(study.record, "film", "losses")
    return [
        (float(row["step"]), float(row["loss"])) for row in (rows if isinstance(rows, list) else [])
    ]


def _draw_heads(axes: Axes, table: pd.DataFrame, name: str) -> None:
    deepest = max(int(table["layer"].max()), 1)
    for (layer, _), rows in table.sort_values("step").groupby(["layer", "head"]):
        axes.plot(
            rows["step"], rows["value"], color=_of_layer(layer, deepest), linewidth=1.0, alpha=0.9
        )
    scale = scale_of(name, table["value"].to_numpy())
    unit = "" if scale.kind == "share" else scale.unit.partition(",")[0]
    axes.set_title(
        plain(f"{name}, {unit}" if unit else name, 24), fontweight="bold"
    )  # no wider than its panel
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
    axes.xaxis.set_minor_locator(_nowhere())
    axes.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    axes.tick_params(colors=RULE, labelcolor=MUTED, labelsize=6.5)
    axes.title.set_fontsize(7.5)
    if is_lowest:
        axes.set_xlabel("step")


def _nowhere() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _draw_layers(fig: Figure, layers: list[int], width: float) -> None:
    deepest = max(max(layers), 1)
    few = layers if len(layers) <= 8 else [layers[0], layers[len(layers) // 2], layers[-1]]
    handles = [Line2D([], [], color=_of_layer(layer, deepest), linewidth=2) for layer in few]
    _legend(fig, handles, [f"layer {layer}" for layer in few], LEFT / width)


def _draw_families(fig: Figure, families: list[str]) -> None:
    named = [*((name, FAMILIES[name]) for name in families), ("no rule holds", MISSING)]
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour) for _, colour in named]
    _legend(fig, handles, [name for name, _ in named], STRIP_LEFT / STRIP_WIDE)


def _legend(fig: Figure, handles: list[Any], labels: list[str], left: float) -> None:
    fig.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(left, 0.0),
        ncols=5,
        frameon=False,
        fontsize=7.5,
        handlelength=1.2,
        borderaxespad=0.4,
        borderpad=0.0,
    )


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
    places = list(
        every[["stack", "layer", "head"]].drop_duplicates().itertuples(index=False, name=None)
    )
    held = {step: _heads_by_family(study, table[table["step"] == step]) for step in steps}
    first, last = (set().union(*held[step].values()) for step in (steps[0], steps[-1]))
    sentence = (
        f"From step {steps[0]} to step {steps[-1]} of the training, heads with a role for sure went from "
        f"{number_of(study, first)} to {counted(study, last, places, noun='')}"
    )
    changes = {
        name: tuple(number_of(study, held[step].get(name, ())) for step in (steps[0], steps[-1]))
        for name in FAMILIES
    }
    told = sorted(
        (name for name in FAMILIES if any(changes[name])), key=lambda name: -max(changes[name])
    )
    if told:
        each = (
            f"{CALLED.get(name, name)} {changes[name][0]} to {changes[name][1]}"
            for name in told[:MOST_CHANGES]
        )
        sentence += f" ({', '.join(each)})"
    later = {
        name: next(step for step in steps if held[step].get(name))
        for name in told
        if not changes[name][0]
    }
    if later:
        named = (
            f"{CALLED.get(name, name)} head appeared at step {step}" for name, step in later.items()
        )
        sentence += f"; the first {', the first '.join(list(named)[:MOST_FIRSTS])}"
    yield Finding("", sentence, (), kind="training")


def _heads_by_family(study: Study, roles: pd.DataFrame) -> dict[str, set[Place]]:
    """Which heads have a role of each family for sure, by these rows."""
    at_step = _with_roles(study, roles)
    found: dict[str, set[Place]] = {}
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
