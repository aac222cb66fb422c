"""Several pruning searches on the same axes, and the roles of the heads that each keeps, after Voita's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.pruning.compare_fronts import lines
from headscope.report.drawing.palette import MUTED, RULE, SERIES
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import SEQUENTIAL, draw_legend_below, whole_numbers
from headscope.report.section import Section, fact_of_task
from headscope.report.study_access import entry_of, model_name
from headscope.report.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, PANEL = 6.4, 0.7, 0.2, 0.55, 2.6
ROW, NAMES, NAMES_LEFT = 0.24, 1.5, 2.3  # names of roles above, of searches at the left


class Fronts(StudyFigure):
    """A line for each search: the metric by the number of heads removed."""

    name = table = "fronts"
    title = "Comparison of searches"
    caption = (
        "The metric on the report split by the number of pruned heads, one line per search. Bars are 95 % intervals, "
        "each for one value alone. The line of random orders is their mean."
    )

    def draw(self, study: Study) -> Figure:
        searches = list(lines(study.tables["fronts"]))
        task, metric = (entry_of(study.record, "fronts", name) for name in ("task", "metric"))
        subtitle = f"{model_name(study)}, {plain(task or '', 30)}"
        body = PANEL + BOTTOM + 0.2 * -(-len(searches) // 3) + 0.1
        with open_sheet(self.title, subtitle, WIDTH, body, 0.2) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - RIGHT, PANEL)
            for i, (name, rows) in enumerate(searches):
                value = rows["metric"]
                ends = np.abs(np.stack([value - rows["metric_low"], rows["metric_high"] - value]))
                # Shifted, so that bars of one size do not cover each other.
                removed = rows["removed"] + 0.12 * (i - (len(searches) - 1) / 2)
                line: dict[str, Any] = {"color": SERIES[i % len(SERIES)], "label": plain(name, 40)}
                line |= {"markersize": 3, "linewidth": 1, "elinewidth": 0.6}
                form = "o-" if i < len(SERIES) else "s--"
                ax.errorbar(removed, value, np.nan_to_num(ends), fmt=form, **line)
            ax.set(xlabel="heads pruned", ylabel=plain(metric or "metric", 30))
            ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
            whole_numbers(ax.xaxis)
            draw_legend_below(sheet.figure, 3)
            return sheet.figure


class Survivors(StudyFigure):
    """A row for each search and size, a column for each role: the share of its heads that is kept."""

    name = table = "survivors"
    title = "Roles of the heads that are kept"
    caption = (
        "Each row is a search and a number of pruned heads, each column a role. The colour is the share of the heads "
        "with that role that is kept; the first column is for all heads. A dot: more heads are kept than by chance "
        "(p < 0.05, not corrected for the number of cells). Roles are those in the unpruned model; the number of heads "
        "with a role is in brackets."
    )

    def draw(self, study: Study) -> Figure:
        table = study.tables["survivors"].query("removed > 0 and draw == 0")
        of_roles = table.drop_duplicates("role").sort_values(
            "with_role", ascending=False, kind="stable"
        )
        sizes = dict(zip(of_roles["role"], of_roles["with_role"], strict=True))
        rows = table.to_dict("records")
        sets = list(dict.fromkeys((row["search"], row["removed"]) for row in rows))
        total = float((table["left"] + table["removed"]).max())
        grid = np.full((len(sets), len(sizes) + 1), np.nan)
        body = ROW * len(sets)
        with open_sheet(self.title, model_name(study), WIDTH, body + 0.3, NAMES) as sheet:
            ax = sheet.add_axes(NAMES_LEFT, 0, WIDTH - NAMES_LEFT - RIGHT, body)
            for row in rows:
                y, x = (
                    sets.index((row["search"], row["removed"])),
                    list(sizes).index(row["role"]) + 1,
                )
                grid[y, 0], grid[y, x] = row["left"] / total, row["kept"] / row["with_role"]
                if row["p"] < 0.05:
                    ax.plot(x, y, "o", color=SERIES[1], markersize=3)
            cells: dict[str, Any] = {"cmap": SEQUENTIAL, "vmin": 0, "vmax": 1, "aspect": "auto"}
            ax.imshow(grid, interpolation="nearest", **cells)
            names = ["all", *(f"{plain(role, 24)} ({sizes[role]})" for role in sizes)]
            slanted: dict[str, Any] = {"rotation": 40, "rotation_mode": "anchor", "ha": "left"}
            ax.set_xticks(range(len(names)), names, color=MUTED, **slanted)
            ax.xaxis.tick_top()
            labels = [f"{plain(search, 28)}, {removed} pruned" for search, removed in sets]
            ax.set_yticks(range(len(sets)), labels)
            return sheet.figure


SECTION = Section(
    figures={18: Fronts, 19: Survivors},
    facts={100: fact_of_task("fronts", "comparison of searches for")},
)
