"""Several searches on the same axes, and what the heads do that each of them keeps, after Voita's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.pruning.compare_fronts import lines
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import (
    SEQUENTIAL,
    figure_with_heading,
    heading_height,
    style,
    whole_numbers,
)
from headscope.report.section import Section, fact_of_task
from headscope.report.study_access import entry_of, model_name
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, PANEL = 6.4, 0.7, 0.2, 0.55, 2.6
ROW, NAMES = 0.24, 1.5


class Fronts(StudyFigure):
    name = table = "fronts"
    title = "Searches side by side"
    caption = (
        "The metric with so many heads removed, for every search, on the examples that are reported on; bars are 95 % "
        "intervals of each value by itself. Random orders are averaged."
    )

    def draw(self, study: Study) -> Figure:
        found = list(lines(study.tables["fronts"]))
        metric = plain(entry_of(study.record, "fronts", "metric") or "metric", 30)
        subtitle = (
            f"{model_name(study)}, {plain(entry_of(study.record, 'fronts', 'task') or '', 30)}"
        )
        with style():
            legend = 0.2 * -(-len(found) // 3) + 0.1
            top = heading_height(WIDTH, subtitle) + 0.2
            height = top + PANEL + BOTTOM + legend
            fig = figure_with_heading(WIDTH, height, self.title, subtitle)
            axes = fig.add_axes(
                (
                    LEFT / WIDTH,
                    (BOTTOM + legend) / height,
                    (WIDTH - LEFT - RIGHT) / WIDTH,
                    PANEL / height,
                )
            )
            for place, (name, rows) in enumerate(found):
                colour = SERIES[place % len(SERIES)]
                ends = np.abs(
                    np.stack(
                        [rows["metric"] - rows["metric_low"], rows["metric_high"] - rows["metric"]]
                    )
                )
                shift = 0.12 * (
                    place - (len(found) - 1) / 2
                )  # so that bars of one size do not cover each other
                axes.errorbar(
                    rows["removed"] + shift,
                    rows["metric"],
                    np.nan_to_num(ends),
                    fmt="o-" if place < len(SERIES) else "s--",
                    color=colour,
                    markersize=3,
                    linewidth=1,
                    elinewidth=0.6,
                    label=plain(name, 40),
                )
            axes.set(xlabel="heads removed", ylabel=metric)
            axes.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
            whole_numbers(axes.xaxis)
            fig.legend(
                *axes.get_legend_handles_labels(),
                loc="lower center",
                ncols=3,
                frameon=False,
                fontsize=7.5,
            )
        return fig


class Survivors(StudyFigure):
    name = table = "survivors"
    title = "What the heads do that are kept"
    caption = (
        "For every search and size, the share of the heads with a role that is kept, beside the share of all heads "
        "that is (first column); a dot marks more than chance would keep (p < 0.05, one test a cell, not corrected). "
        "Roles are those of the whole model; in brackets how many heads have each."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["survivors"].query("removed > 0 and draw == 0")
        sizes = dict(
            table.drop_duplicates("role")[["role", "with_role"]].itertuples(index=False, name=None)
        )
        roles = sorted(sizes, key=lambda role: -sizes[role])
        sets = list(
            table[["search", "removed"]].drop_duplicates().itertuples(index=False, name=None)
        )
        total = float((table["left"] + table["removed"]).max())
        grid = np.full((len(sets), len(roles) + 1), np.nan)
        marked = []
        for row in table.to_dict("records"):
            y, x = sets.index((row["search"], row["removed"])), roles.index(row["role"]) + 1
            grid[y, 0], grid[y, x] = row["left"] / total, row["kept"] / row["with_role"]
            if row["p"] < 0.05:
                marked.append((x, y))
        left = 2.3
        with style():
            top = heading_height(WIDTH, model_name(study)) + NAMES
            height = top + ROW * len(sets) + 0.3
            fig = figure_with_heading(WIDTH, height, self.title, model_name(study))
            size = ((WIDTH - left - RIGHT) / WIDTH, ROW * len(sets) / height)
            axes = fig.add_axes((left / WIDTH, 0.3 / height, *size))
            axes.imshow(
                grid, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
            )
            for x, y in marked:
                axes.plot(x, y, "o", color=SERIES[1], markersize=3)
            names = ["all", *(f"{plain(role, 24)} ({sizes[role]})" for role in roles)]
            axes.set_xticks(
                range(len(names)),
                names,
                rotation=40,
                ha="left",
                rotation_mode="anchor",
                color=MUTED,
            )
            axes.xaxis.tick_top()
            axes.set_yticks(
                range(len(sets)),
                [f"{plain(search, 28)}, {removed} gone" for search, removed in sets],
            )
        return fig


SECTION = Section(
    figures={18: Fronts, 19: Survivors},
    facts={100: fact_of_task("fronts", "searches side by side for")},
)
