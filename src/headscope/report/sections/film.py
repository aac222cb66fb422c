"""Heads over a training: statistics by step, a line for each head; the main role of every head at each checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from headscope.report.drawing.palette import INK, MISSING, MUTED, RULE
from headscope.report.drawing.sheet import Panels, Sheet, open_sheet
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CHANGES, MOST_FIRSTS = 4, 2  # in one sentence
ADJECTIVES = {"position": "positional", "special tokens": "special-token", "relation": "relational"}
# The most informative statistics come first.
FIRST: tuple[str, ...] = ("previous", "next", "self", "cls", "sep", "punctuation", "entropy")
FIRST += ("confidence-content", "positional-share", "special")
MOST_PANELS, ACROSS = 12, 4
PANELS = Panels(
    wide=1.5, tall=1.25, left=0.5, right=0.2, bottom=0.85, above=0.35, gap_x=0.48, gap_y=0.5
)
PALEST, DARKEST = 0.3, 0.72  # range of the line colours: legible on a pale page and on a dark one
LEGEND: dict[str, Any] = {"ncols": 5, "handlelength": 1.2, "borderaxespad": 0.4}
ROW, WIDTH, LEFT, RIGHT, BOTTOM = 0.11, 6.4, 0.95, 0.2, 0.97


class StatisticsByStep(StackFigure):
    """One panel per statistic, with one line per head, coloured by layer."""

    stem = "film"
    table = "film"
    title = "Heads over training"
    caption = (
        "Each panel is a statistic, each line a head. Lines of the first layer are pale, those of the last layer dark. "
        "The x axis is the training step on a log scale; 0 is the model before any training."
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
        losses = entry_of(study.record, "film", "losses")
        losses = losses if isinstance(losses, list) else []
        panels = [*(["loss"] if losses else []), *_select_statistics(table)]
        steps = sorted(table["step"].unique())
        subtitle = f"{model_name(study)}, {plain(self.stack)} · a line is a head · {len(steps)} checkpoints"
        across, down = min(ACROSS, len(panels)), -(-len(panels) // ACROSS)
        with PANELS.open(self.title, subtitle, down, across) as sheet:
            for i, name in enumerate(panels):
                ax = sheet.add_panel(*divmod(i, ACROSS))
                if name == "loss":
                    x, y = ([float(row[key]) for row in losses] for key in ("step", "loss"))
                    ax.plot(x, y, color=INK, linewidth=1.2)
                    ax.set_title("held-out loss, nats", fontweight="bold")
                else:
                    _draw_heads(ax, table[table["statistic"] == name], name)
                _scale_steps(ax, steps, is_lowest=i + ACROSS >= len(panels))
            _draw_layers(sheet, sorted(table["layer"].unique()))
            return sheet.figure


class RolesByStep(StackFigure):
    """A row for every head, its main role at each checkpoint."""

    stem = "film-roles"
    table = "film_roles"
    title = "Roles over training"
    caption = (
        "Each row is a head, ordered by layer; each column is a checkpoint. The colour is the main role of the head at "
        "that step; grey: no role."
    )

    def applies(self, study: Study) -> bool:
        return self.table in study.tables

    def draw(self, study: Study) -> Figure:
        table = study.tables["film_roles"].query("stack == @self.stack")
        heads = sorted(keys_of(table))
        steps = sorted(table["step"].unique().tolist())
        families = {
            (step, head): names[0]
            for step in steps
            for head, names in _families(study, table[table["step"] == step]).items()
        }
        subtitle = f"{model_name(study)}, {plain(self.stack)} · {len(heads)} heads, {len(steps)} checkpoints"
        body = max(1.4, ROW * len(heads))
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.15) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, body)
            for (row, head), (column, step) in product(enumerate(heads), enumerate(steps)):
                colour = FAMILIES.get(families.get((step, head), ""), MISSING)
                corner = (column + 0.02, row + 0.06)
                ax.add_patch(Rectangle(corner, 0.96, 0.88, facecolor=colour, linewidth=0))
            ax.set(xlim=(0, len(steps)), ylim=(len(heads), 0), xlabel="step")
            ax.set_xticks(np.arange(len(steps)) + 0.5, [str(step) for step in steps])
            name_blocks(ax, [f"layer {layer}" for _, layer, _ in heads])
            ax.tick_params(length=0, pad=3)
            ax.spines[:].set_visible(False)
            present = set(families.values())
            handles = family_handles([name for name in FAMILIES if name in present])
            draw_legend(sheet.figure, handles, (LEFT / WIDTH, 0.0), **LEGEND)
            return sheet.figure


def _select_statistics(table: pd.DataFrame) -> list[str]:
    """The statistics with a panel: the most informative first, as many as there is room for."""
    names = dict.fromkeys(table.dropna(subset="value")["statistic"].astype(str))
    first = [name for name in FIRST if name in names]
    return list(dict.fromkeys([*first, *names]))[:MOST_PANELS]


def _draw_heads(ax: Axes, table: pd.DataFrame, name: str) -> None:
    deepest = max(int(table["layer"].max()), 1)
    for (layer, _), rows in table.sort_values("step").groupby(["layer", "head"]):
        colour = _layer_colour(layer, deepest)
        ax.plot(rows["step"], rows["value"], color=colour, linewidth=1.0, alpha=0.9)
    scale = scale_of(name, table["value"].to_numpy())
    unit = "" if scale.kind == "share" else scale.unit.partition(",")[0]
    title = plain(f"{name}, {unit}" if unit else name, 24)  # no wider than its panel
    ax.set_title(title, fontweight="bold")
    if scale.low == 0 and name != "entropy":
        ax.set_ylim(bottom=0)


def _layer_colour(layer: Any, deepest: int) -> Any:
    return SEQUENTIAL(PALEST + (DARKEST - PALEST) * int(layer) / deepest)


def _scale_steps(ax: Axes, steps: list[int], *, is_lowest: bool) -> None:
    """Steps on a logarithmic axis, with room for 0."""
    first = next((step for step in steps if step > 0), 1)
    ax.set_xscale("symlog", linthresh=first, linscale=0.5)
    ax.set_xlim(0, steps[-1])
    ticks = [0, first, *([steps[-1]] if steps[-1] > first else [])]
    ax.set_xticks(ticks, [str(step) for step in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    ax.tick_params(colors=RULE, labelcolor=MUTED, labelsize=6.5)
    ax.title.set_fontsize(7.5)
    if is_lowest:
        ax.set_xlabel("step")


def _draw_layers(sheet: Sheet, layers: list[int]) -> None:
    """A legend of the layers, or of three if there are many."""
    deepest = max(max(layers), 1)
    few = layers if len(layers) <= 8 else [layers[0], layers[len(layers) // 2], layers[-1]]
    colours = {f"layer {layer}": _layer_colour(layer, deepest) for layer in few}
    handles = {name: Line2D([], [], color=colours[name], linewidth=2) for name in colours}
    draw_legend(sheet.figure, handles, (PANELS.left / sheet.width, 0.0), **LEGEND)


def _families(
    study: Study, roles: pd.DataFrame, *, only_sure: bool = False
) -> dict[HeadKey, list[str]]:
    """For each head in these rows, the families of its roles; the family of the main role comes first."""
    relations = {name: table for name, table in study.tables.items() if name == "relations"}
    at_step = Study(study.heads, {}, study.record, {"roles": roles, **relations})
    families = {
        head: [
            family_of(role.name, at_step)[0] for role in of_head if role.is_sure or not only_sure
        ]
        for head, of_head in roles_by_head(at_step).items()
    }
    return {head: names for head, names in families.items() if names}


def findings(study: Study) -> Iterator[Finding]:
    """Changes from the first checkpoint to the last, by families of clear roles."""
    table, every = study.tables.get("film_roles"), study.tables.get("film")
    if table is None or every is None or every["step"].nunique() < 2:
        return
    steps = sorted(int(step) for step in every["step"].unique())
    families = {
        step: _families(study, table[table["step"] == step], only_sure=True) for step in steps
    }
    first, last = families[steps[0]], families[steps[-1]]
    sentence = (
        f"From step {steps[0]} to step {steps[-1]} of the training, the number of heads with a clear role went from "
        f"{count_heads(study, first)} to {count_text(study, last, keys_of(every), noun='')}"
    )
    details = []

    def number_with(name: str, step: int) -> int:
        return count_heads(study, [p for p, names in families[step].items() if name in names])

    changes = {
        name: [number_with(name, step) for step in (steps[0], steps[-1])] for name in FAMILIES
    }
    largest = sorted(
        (name for name in FAMILIES if any(changes[name])), key=lambda n: -max(changes[n])
    )
    if largest:
        each = [
            f"{_adjective(n)} {changes[n][0]} to {changes[n][1]}" for n in largest[:MOST_CHANGES]
        ]
        details.append(", ".join(each))
    new = [name for name in largest if not changes[name][0]][:MOST_FIRSTS]
    starts = {name: next(step for step in steps if number_with(name, step)) for name in new}
    if new:
        each = [
            f"the first {_adjective(name)} head appeared at step {starts[name]}" for name in new
        ]
        details.append(", ".join(each))
    yield Finding("", sentence, (), kind="training", after="; ".join(details))


def _adjective(family: str) -> str:
    return ADJECTIVES.get(family, family)


SECTION = Section(
    figures={24: StatisticsByStep},
    findings={60: findings},
    facts={120: Fact("film", lambda record: "roles of heads over training")},
)
