"""What do other lenses show? Token classes through each lens, separators as a no-op, mixing, agreement with removal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.ablation.agreement import LEAST_CEILING
from headscope.analysis.separators import SMALL
from headscope.report.figures._lines import Line, Lines, draw_lines
from headscope.report.figures._palette import MUTED, RULE, SERIES
from headscope.report.figures._source import Source, table
from headscope.report.figures._style import SEQUENTIAL, headed, heading_height, style
from headscope.report.grids import model_name, plain, stacks_of, stacks_with
from headscope.report.lens_parts import forms_of, lengths_covered, lenses_of, width_of_heads
from headscope.study.schema.names import through_lens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.study.study import Study

ORDER = 60
MASSES = {
    "cls": "classification token",
    "sep": "separators",
    "first": "first token",
    "punctuation": '"." and ","',
}
CLASSES = {
    "sep": "separators",
    "cls": "classification token",
    "first": "first token",
    "punctuation": '"." and ","',
}
RATIOS = {
    "gradient-ratio": "|∂loss/∂A|",
    "weighted-ratio": "|A·∂loss/∂A|",
    "centred-ratio": "centred |∂loss/∂A|",
}
JUDGED = ("gradient-ratio", "centred-ratio")  # that are called small or not


@dataclass(frozen=True)
class LensFigure:
    name: str
    title: str
    caption: str
    is_there: Callable[[Study], bool]
    drawn: Callable[[Study, str], Figure]
    table: str = ""  # that it is drawn from; empty: heads.csv
    is_raster: bool = False

    def applies(self, study: Study) -> bool:
        return self.is_there(study)

    def source(self, study: Study) -> Source:
        return table(self.table) if self.table else Source("heads", _names(study))

    def draw(self, study: Study) -> Figure:
        return self.drawn(study, self.title)


def drawings(study: Study) -> Iterator[LensFigure]:
    yield LensFigure(
        "lens-shares",
        "Attention to kinds of tokens, through each lens",
        "Means over the heads of a layer; bands are twice the standard error of that mean, by how heads differ. "
        "Through norm and gradient a token has the share of what its weights move, or would change the loss by: less "
        "than raw says that weight on it does less than weight on others. Effective attention need not sum to 1.",
        lambda one: bool(lenses_of(one)) and bool(set(MASSES) & set(one.heads["statistic"])),
        _shares,
    )
    yield LensFigure(
        "no-op-gradients",
        "Is attention to separators, or to another sink, a no-op?",
        "Left: the attention that each kind of token gets. Then the mean gradient by a weight on such a token over "
        "that by a weight on other tokens (1: the same): as it is, times the weight, and less its row's mean, which "
        f"counts where weight goes instead; below the broken line ({SMALL}) a gradient is called small. Log scale. "
        "Bands are 95 % intervals over texts.",
        lambda one: "gradients" in one.tables,
        _no_op,
        "gradients",
    )
    yield LensFigure(
        "effective-lengths",
        "Effective attention and raw, by length of the text",
        "Pearson's correlation of the two maps, a mean over the heads of a layer, in texts of up to so many tokens; "
        "bars are 95 % intervals over texts. Up to the width of a head all of attention is effective. "
        + lengths_covered(study),
        lambda one: (
            "effective_lengths" in one.tables
            and one.tables["effective_lengths"]["up_to"].nunique() > 1
        ),
        _lengths,
        "effective_lengths",
    )
    yield LensFigure(
        "mixing",
        "How much of a token comes from others, by layer",
        "By weights alone, by the length of what heads move, with the residual, and behind the LayerNorm.",
        lambda one: "mixing" in one.tables,
        _mixing,
        "mixing",
    )
    yield LensFigure(
        "agree-lenses",
        "Statistics through each lens against exact removal",
        "Spearman's correlation over heads with the exact change of loss when a head is removed; bars are 95 % "
        "intervals over heads, which are resampled. Broken lines are the ceilings, up and down: what the true "
        "importances would reach in that stack, given how noisy the exact changes are. Stacks whose ceiling is below "
        f"{LEAST_CEILING:g} are left out.",
        lambda one: ranked_rows(one) is not None,
        _agreement,
        "lenses",
    )


def _names(study: Study) -> tuple[str, ...]:
    """The masses that are drawn, through every lens."""
    masses = [
        mass for mass in MASSES if any(_is_drawn(study, mass, stack) for stack in stacks_of(study))
    ]
    return tuple(through_lens(mass, lens) for mass in masses for lens in lenses_of(study))


def _is_drawn(study: Study, mass: str, stack: str) -> bool:
    """Not the first token where that is the classification token, which has a panel of its own."""
    return mass != "first" or stack not in stacks_with(study, "cls")


def _shares(study: Study, title: str) -> Figure:
    means = study.heads.groupby(["stack", "layer", "statistic"], as_index=False)["value"].agg(
        ["mean", "sem"]
    )
    rows = []
    for stack in stacks_of(study):
        panels = []
        for mass, heading in MASSES.items():
            lines = {}
            for lens in lenses_of(study) if _is_drawn(study, mass, stack) else ():
                name = through_lens(mass, lens)
                here = means[(means["stack"] == stack) & (means["statistic"] == name)]
                points = [
                    (layer, mean, mean - 2 * error, mean + 2 * error)
                    for layer, mean, error in here[["layer", "mean", "sem"]].itertuples(index=False)
                ]
                if points:
                    lines[lens] = Line(points)
            if lines:
                panels.append(Lines(_headed(study, stack, heading), "share", lines))
        rows += [panels] if panels else []
    return draw_lines(rows, title, model_name(study))


def _no_op(study: Study, title: str) -> Figure:
    table = study.tables["gradients"]
    rows = []
    for stack in dict.fromkeys(table["stack"]):
        panels = []
        for measure, heading in {"attention": "attention", **RATIOS}.items():
            here = table[(table["stack"] == stack) & (table["measure"] == measure)]
            lines = {
                name: Line(_points(here[here["class"] == kind])) for kind, name in CLASSES.items()
            }
            lines = {name: line for name, line in lines.items() if line.points}
            if lines:
                unit = "share" if measure == "attention" else "over others"
                threshold = SMALL if measure in JUDGED else None
                named = _headed(study, stack, heading)
                panels.append(
                    Lines(named, unit, lines, is_ratio=measure != "attention", threshold=threshold)
                )
        rows += [panels] if panels else []
    return draw_lines(rows, title, model_name(study))


def _mixing(study: Study, title: str) -> Figure:
    table = study.tables["mixing"]
    panels = []
    for stack in dict.fromkeys(table["stack"]):
        here = table[table["stack"] == stack]
        lines = {
            words: Line(_points(here[here["form"] == form]))
            for form, words in forms_of(here).items()
        }
        panels.append(Lines(plain(stack, 20), "share of others", lines))
    return draw_lines([panels], title, model_name(study))


def _lengths(study: Study, title: str) -> Figure:
    """A panel a stack, a line a layer; a line across at the heads' width, from which on the two can differ."""
    table = study.tables["effective_lengths"]
    stacks = list(dict.fromkeys(table["stack"]))
    subtitle = model_name(study)
    with style():
        wide, tall, left, gap, bottom = 4.2, 2.3, 0.7, 0.5, 0.55
        width = left + len(stacks) * (wide + gap)
        top = heading_height(width, subtitle) + 0.45
        height = top + tall + bottom
        fig = headed(width, height, title, subtitle)
        for i, stack in enumerate(stacks):
            ax = fig.add_axes(
                ((left + i * (wide + gap)) / width, bottom / height, wide / width, tall / height)
            )
            _draw_lengths(ax, table[table["stack"] == stack], width_of_heads(study, stack))
            if len(stacks) > 1:
                ax.set_title(plain(stack, 20), loc="left", fontweight="bold", pad=14)
            if not i:
                ax.set_ylabel("correlation")
        return fig


def _draw_lengths(ax: Axes, table: pd.DataFrame, width: int | None) -> None:
    """Lengths on a logarithmic axis."""
    lengths = sorted({int(length) for length in table["up_to"]})
    layers = sorted(set(table["layer"]))
    ax.set_xscale("log")
    for j, layer in enumerate(layers):
        one = table[table["layer"] == layer].sort_values("up_to")
        colour = SEQUENTIAL(0.2 + 0.8 * j / max(len(layers) - 1, 1))
        ax.vlines(one["up_to"], one["low"], one["high"], color=colour, linewidth=1.0, alpha=0.5)
        ax.plot(
            one["up_to"],
            one["value"],
            "o-",
            color=colour,
            markersize=3,
            linewidth=1.2,
            label=f"layer {layer}",
        )
    ends = [*lengths, width] if width else lengths
    ax.set_xlim(min(ends) / 1.15, max(ends) * 1.15)
    ax.set_xticks(_apart(lengths, max(ends) / min(ends)), minor=False)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.set_xticks([], minor=True)
    ax.set_xlabel("tokens, up to (log scale)")
    ax.set_ylim(min(0.0, float(table["value"].min())), 1.02)
    ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
    ax.legend(frameon=False, fontsize=6.5, ncols=2 if len(layers) > 6 else 1)
    if width:
        ax.axvline(width, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        above = ax.get_xaxis_transform()
        ax.text(
            width,
            1.02,
            f"heads are {width} wide",
            transform=above,
            ha=_side(width, ends),
            va="bottom",
            fontsize=7,
        )


def _apart(lengths: list[int], span: float) -> list[int]:
    """Those of the lengths whose labels do not touch, the longest kept."""
    kept = lengths[-1:]
    for length in reversed(lengths[:-1]):
        if kept[0] / length > span ** (1 / 14):
            kept = [length, *kept]
    return kept


def _side(width: int, ends: list[int]) -> Literal["left", "right", "center"]:
    return "left" if width == min(ends) else "right" if width == max(ends) else "center"


def _points(table: Any) -> list[tuple[int, float, float, float]]:
    return list(table[["layer", "value", "low", "high"]].itertuples(index=False, name=None))


def _headed(study: Study, stack: str, heading: str) -> str:
    return heading if len(stacks_of(study)) == 1 else f"{plain(stack, 12)}: {heading}"


def ranked_rows(study: Study) -> pd.DataFrame | None:
    """Rows of lenses.csv of the stacks in which exact removal is clear enough to rank heads by; None if there are none.

    Where no ceilings were measured (after a race) the rows are taken as they are.
    """
    table = study.tables.get("lenses")
    if table is None:
        return None
    is_clear = table["ceiling"] >= LEAST_CEILING
    if "ceilings" not in study.tables:
        is_clear |= table["ceiling"].isna()
    return table[is_clear] if is_clear.any() else None


def _agreement(study: Study, title: str) -> Figure:
    """A line of dots a stack and statistic, one a lens."""
    table = ranked_rows(study)
    assert table is not None
    names = list(dict.fromkeys(table[["stack", "statistic"]].itertuples(index=False, name=None)))
    lenses = list(dict.fromkeys(table["lens"]))
    subtitle = model_name(study)
    with style():
        width, row, left, bottom = 6.6, 0.3, 2.0, 0.5
        top = heading_height(width, subtitle) + 0.45
        height = top + row * len(names) + bottom
        fig = headed(width, height, title, subtitle)
        ax = fig.add_axes(
            (left / width, bottom / height, (width - left - 0.2) / width, row * len(names) / height)
        )
        for i, lens in enumerate(lenses):
            here = table[table["lens"] == lens]
            down = [
                names.index((one.stack, one.statistic)) + 0.12 * (i - (len(lenses) - 1) / 2)
                for one in here.itertuples()
            ]
            colour = SERIES[i % len(SERIES)]
            ax.hlines(down, here["low"], here["high"], color=colour, linewidth=1.0, alpha=0.6)
            ax.plot(here["correlation"], down, "o", color=colour, markersize=4, label=lens)
        for stack, ceiling in dict(zip(table["stack"], table["ceiling"], strict=True)).items():
            rows = [i for i, (of, _) in enumerate(names) if of == stack]
            if np.isfinite(ceiling):
                for x in (-ceiling, ceiling):
                    ax.vlines(
                        x,
                        rows[0] - 0.5,
                        rows[-1] + 0.5,
                        color=SERIES[1],
                        linewidth=1.2,
                        linestyle=(0, (4, 2)),
                    )
        ax.axvline(0.0, color=MUTED, linewidth=0.8)
        several = len({stack for stack, _ in names}) > 1
        ax.set_yticks(
            range(len(names)), [f"{stack} {name}" if several else name for stack, name in names]
        )
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(-1, 1)
        ax.set_xlabel("Spearman's correlation with the change of loss")
        ax.grid(axis="x", color=RULE, linewidth=0.5, alpha=0.7)
        fig.legend(
            loc="upper left",
            bbox_to_anchor=(0.02, (height - top + 0.42) / height),
            ncols=len(lenses),
            frameon=False,
        )
        return fig
