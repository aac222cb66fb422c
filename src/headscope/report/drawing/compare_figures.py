"""Figures of a comparison: layers, maps, roles and matched heads of models, on common scales."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.analysis.roles import UNDETERMINED
from headscope.report.drawing.heat_maps import Panel, draw_panels
from headscope.report.drawing.palette import INK, MUTED, ON_DARK, ON_LIGHT, RULE, SERIES
from headscope.report.drawing.sheet import LEAST_WIDTH, Panels, Sheet, open_sheet
from headscope.report.drawing.style import draw_grid, whole_numbers, write_in_cell
from headscope.report.head_cards import role_label
from headscope.report.rendered_figures import RenderedFigure, is_drawing
from headscope.report.scale import Scale, scale_of, title_of
from headscope.report.study_access import grid_of, rows_for
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.analysis.compare import Comparison
    from headscope.study.study import Study

# The statistics that are drawn first; the csv files have all of them
BREADTH = ("confidence", "confidence-content", "entropy", "entropy-share")
TARGETS = ("special", "cls", "sep", "punctuation")
MAIN = (*BREADTH, *TARGETS, "previous", "next", "self", "distance", "argmax-share")
FORMS = {  # headings, and what is shuffled
    "heads": ("heads in order", "heads"),
    "sorted": ("heads sorted by value", "layers"),
    "means": ("means of the layers", "layers"),
}
CONFIDENCES = {
    "confidence": "special tokens included",
    "confidence-content": "special tokens left out",
}
LAYERS = Panels(
    wide=2.35, tall=1.65, left=0.5, right=0.15, bottom=0.5, above=0.6, gap_x=0.45, gap_y=0.62
)
CHANGES = Panels(wide=3.1, tall=1.9, left=0.6, right=0.15, bottom=0.5, above=0.6, gap_x=0.6)


def draw_comparison(comparison: Comparison) -> Iterator[RenderedFigure]:
    """Every figure that there are numbers for, in the order in which they are shown."""
    if not is_drawing():
        return
    for stack in dict.fromkeys(comparison.layers["stack"]):
        yield _layers(comparison, stack)
        yield from _confidence(comparison, stack)
        if len(comparison.smoothness) and (comparison.smoothness["stack"] == stack).any():
            yield _smoothness(comparison, stack)
    if len(comparison.roles):
        for stack in dict.fromkeys(comparison.roles["stack"]):
            yield _roles(comparison, stack)
    if len(comparison.matches):
        pairs = comparison.matches.groupby(["study", "other", "stack"], sort=False)
        for (study, other, stack), some in pairs:
            within = some[some["within"] == "stack"]
            yield _matches(comparison, str(study), str(other), str(stack), within)
    if len(comparison.changes):
        for stack in dict.fromkeys(comparison.changes["stack"]):
            yield _layer_changes(comparison, stack)
            yield _changes(comparison, stack)


def _comparison_figure(
    kind: str, of: str, title: str, caption: str, figure: Figure, data: pd.DataFrame
) -> RenderedFigure:
    name = f"compare-{kind}-{slug(of)}"
    return RenderedFigure(name, title, caption, figure, is_raster=False, data=data)


def _main(present: pd.Series[str], most: int) -> list[str]:
    names = set(present)
    return list(dict.fromkeys(name for name in (*MAIN, *present) if name in names))[:most]


def _list_names(names: list[str]) -> str:
    return (" and " if len(names) < 3 else ", ").join(plain(name, 40) for name in names)


def _layers(comparison: Comparison, stack: str) -> RenderedFigure:
    """One panel per statistic, a line per model, a dot per head; over relative depth if the models differ in depth."""
    table = comparison.layers[comparison.layers["stack"] == stack]
    statistics = _main(table["statistic"], 6)
    across = "layer" if table.groupby("study")["layer"].max().nunique() == 1 else "depth"
    title = "Statistics by layer"
    names = _list_names(comparison.names)
    subtitle = f"{names}, {stack} · a dot is a head, the line joins the means of layers"
    subtitle += "; depth: 0 is the first layer, 1 the last" if across == "depth" else ""
    columns = min(len(statistics), 3)
    rows = -(-len(statistics) // columns)
    with LAYERS.open(title, subtitle, rows, columns) as sheet:
        for i, statistic in enumerate(statistics):
            row, column = divmod(i, columns)
            ax = sheet.add_panel(row, column)
            of_statistic = table[table["statistic"] == statistic]
            for number, (name, study) in enumerate(_studies(comparison)):
                dots = rows_for(study, statistic, stack)
                line = of_statistic[of_statistic["study"] == name]
                _draw_line(ax, line, dots, across, SERIES[number % len(SERIES)], plain(name, 40))
            ax.set_title(plain(title_of(statistic), 40), fontweight="bold")
            ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
            ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
            if across == "layer":
                whole_numbers(ax.xaxis, 12)
            if row == rows - 1:
                ax.set_xlabel(across)
            if i == 0:
                _draw_legend(sheet, ax, -0.44)
    caption = "Each colour is a model. The band is the mean of the 95 % intervals of its heads over texts."
    return _comparison_figure("layers", stack, title, caption, sheet.figure, table)


def _draw_line(
    ax: Axes, line: pd.DataFrame, dots: pd.DataFrame, across: str, colour: str, label: str
) -> None:
    """The means of a study's layers, and a dot for each head."""
    x = line[across].to_numpy(dtype=float)
    x_of = dict(zip(line["layer"], x, strict=True))
    heads = [x_of[layer] for layer in dots["layer"]]
    ax.scatter(heads, dots["value"], s=8, color=colour, alpha=0.3, linewidths=0)
    ax.fill_between(x, line["low"], line["high"], color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, line["mean"], "o-", color=colour, linewidth=1.8, markersize=2.5, label=label)


def _draw_legend(sheet: Sheet, ax: Axes, down: float) -> None:
    """The labels of a panel between heading and panels."""
    options: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": sheet.point(0.12, down)}
    options |= {"borderpad": 0, "borderaxespad": 0, "handlelength": 1.2}
    options |= {"ncols": 4, "frameon": False, "fontsize": 8, "labelcolor": INK}
    sheet.figure.legend(*ax.get_legend_handles_labels(), **options)


def _studies(comparison: Comparison) -> list[tuple[str, Study]]:
    return list(zip(comparison.names, comparison.studies, strict=True))


def _confidence(comparison: Comparison, stack: str) -> Iterator[RenderedFigure]:
    """The maps of all models on one colour scale, once with and once without special tokens."""
    import pandas as pd

    if not all(stack in set(study.heads["stack"]) for study in comparison.studies):
        return  # read from a directory, which keeps no rows of heads
    present = set(comparison.layers[comparison.layers["stack"] == stack]["statistic"])
    scale = scale_of("confidence", np.array([0.0, 1.0]))
    studies = _studies(comparison)
    for statistic in [statistic for statistic in CONFIDENCES if statistic in present]:
        tokens = CONFIDENCES[statistic]
        panels = [Panel(name, grid_of(study, statistic, stack)) for name, study in studies]
        subtitle = f"{stack} · largest attention weight of a query, averaged, {tokens}"
        title = f"Confidence, {tokens}"
        figure = draw_panels(panels, scale, title, subtitle)
        caption = (
            "All models have the same colour scale. A column is the same head in several layers only if these layers "
            "share their parameters (ALBERT)."
        )
        rows = [rows_for(study, statistic, stack).assign(study=name) for name, study in studies]
        data = pd.concat(rows, ignore_index=True)
        yield _comparison_figure(statistic, stack, title, caption, figure, data)


def _smoothness(comparison: Comparison, stack: str) -> RenderedFigure:
    """One panel per form, a row per statistic, a mark per model on the grey interval of shuffled values."""
    table = comparison.smoothness[comparison.smoothness["stack"] == stack]
    statistics = _main(table["statistic"], 14)
    title = "Smoothness across layers"
    studies = comparison.names
    what = "correlation of neighbouring layers; bars: after shuffling"
    subtitle = f"{_list_names(studies)}, {stack} · {what}"
    tall = (0.11 * len(studies) + 0.12) * len(statistics)
    sizes = Panels(wide=2.2, tall=tall, left=1.6, right=0.25, bottom=0.5, above=0.62, gap_x=0.25)
    with sizes.open(title, subtitle, 1, len(FORMS)) as sheet:
        for column, (form, (heading, shuffled)) in enumerate(FORMS.items()):
            ax = sheet.add_panel(0, column)
            for number, study in enumerate(studies):
                some = table[(table["study"] == study) & (table["form"] == form)]
                some = some.set_index("statistic").reindex(statistics)
                y = np.arange(len(statistics)) + (number + 0.5) / len(studies) * 0.8 - 0.4
                colour = SERIES[number % len(SERIES)]
                ax.hlines(y, some["null_low"], some["null_high"], color=RULE, linewidth=4.5)
                ax.hlines(y, some["low"], some["high"], color=colour, linewidth=1.2)
                ax.plot(some["value"], y, "o", color=colour, markersize=4, label=plain(study, 40))
            ax.set(xlim=(-1.05, 1.05), ylim=(len(statistics) - 0.5, -0.5))
            ax.set_xlabel(f"correlation; bar: {shuffled} shuffled")
            ax.axvline(0, color=MUTED, linewidth=0.6)
            ax.set_title(heading, fontweight="bold")
            labels = [plain(name, 26) for name in statistics] if column == 0 else []
            ax.set_yticks(range(len(statistics)) if column == 0 else [], labels)
            if column == 0:
                _draw_legend(sheet, ax, -0.42)
    caption = (
        "Marks are means over pairs of neighbouring layers with 95 % bootstrap intervals over the pairs. “Heads in "
        "order” compares head h with head h of the next layer, which has a meaning only if layers share parameters. "
        "Sorted values and means of layers have a meaning in every model. Bars are the same after shuffling."
    )
    return _comparison_figure("smoothness", stack, title, caption, sheet.figure, table)


def _roles(comparison: Comparison, stack: str) -> RenderedFigure:
    """One panel per model: roles down, layers across, the number of heads."""
    table = comparison.roles[comparison.roles["stack"] == stack]
    roles = table.groupby("role")["share"].sum().sort_values(ascending=False).index.tolist()
    undetermined = [UNDETERMINED] if UNDETERMINED in roles else []
    roles = [role for role in roles if role != UNDETERMINED][:16] + undetermined
    studies = [name for name in comparison.names if (table["study"] == name).any()]
    title = "Roles"
    subtitle = (
        f"{stack} · number: heads of the layer with the role; colour: their share of the layer"
    )
    scale = Scale("share", 0.0, 1.0)
    left, gap, right, bottom, cell = 1.75, 0.3, 0.85, 0.5, 0.27
    layers = {name: int(table[table["study"] == name]["layer"].max()) + 1 for name in studies}
    across, tall = sum(layers.values()) * cell + gap * (len(studies) - 1), len(roles) * cell
    width = max(left + across + right, LEAST_WIDTH)
    with open_sheet(title, subtitle, width, max(tall, 0.9) + bottom, 0.3) as sheet:
        x = left
        for name in studies:
            wide = layers[name] * cell
            ax = sheet.add_axes(x, 0, wide, tall)
            _draw_roles(ax, table[table["study"] == name], roles, layers[name], scale)
            ax.set_title(plain(name, max(int(wide * 13), 12)), fontweight="bold")
            ax.set_xlabel("layer")
            labels = [plain(role_label(role), 28) for role in roles] if name == studies[0] else []
            ax.set_yticks([i + 0.5 for i in range(len(roles))], labels)
            x += wide + gap
        bar = max(min(tall, 2.6), 0.9)
        sheet.add_bar(left + across + 0.2, bar, scale, "share of the layer's heads")
    caption = "A head can have several roles. The rules and their thresholds are in roles.csv of each study."
    return _comparison_figure("roles", stack, title, caption, sheet.figure, table)


def _draw_roles(ax: Axes, some: pd.DataFrame, roles: list[str], layers: int, scale: Scale) -> None:
    grid = np.zeros((len(roles), layers))
    rows = some[some["role"].isin(roles)].to_dict("records")
    for row in rows:
        grid[roles.index(row["role"]), row["layer"]] = row["share"]
    draw_grid(ax, grid, scale, prints_values=False)
    for row in rows:
        x, y = row["layer"] + 0.5, roles.index(row["role"]) + 0.52
        colour = ON_DARK if row["share"] > 0.5 else ON_LIGHT
        write_in_cell(ax, x, y, str(row["heads"]), 6.8, colour)


def _matches(
    comparison: Comparison, study: str, other: str, stack: str, some: pd.DataFrame
) -> RenderedFigure:
    """[layer, other layer]: how many heads of a layer of one model are matched to heads of a layer of the other."""
    grid = np.zeros((int(some["layer"].max()) + 1, int(some["other_layer"].max()) + 1))
    np.add.at(grid, (some["layer"].to_numpy(), some["other_layer"].to_numpy()), 1)
    rows = comparison.matching.to_dict("records")
    key = (study, other, stack, "stack")
    keys = [(row["study"], row["other"], row["stack"], row["within"]) for row in rows]
    summary = rows[keys.index(key)]
    title = "Heads matched by behaviour"
    subtitle = (
        f"{stack} · {summary['matched']} pairs, mean distance {summary['distance']:.2f} standard deviations; "
        f"shuffled heads {summary['null']:.2f} [{summary['null_low']:.2f}, {summary['null_high']:.2f}]"
    )
    scale = Scale("other", 0.0, max(float(grid.max()), 1.0))
    left, right, bottom, cell = 0.7, 1.0, 0.55, 0.3 if max(grid.shape) <= 24 else 0.15
    tall, wide = (side * cell for side in grid.shape)
    width = max(left + wide + right, 5.0)
    with open_sheet(title, subtitle, width, max(tall, 0.9) + bottom, 0.12) as sheet:
        ax = sheet.add_axes(left, 0, wide, tall)
        draw_grid(ax, np.where(grid > 0, grid, np.nan), scale, prints_values=False)
        for (layer, column), count in np.ndenumerate(grid):
            if count:
                colour = ON_DARK if count > 0.55 * scale.high else ON_LIGHT
                write_in_cell(ax, column + 0.5, layer + 0.52, f"{count:.0f}", 6.8, colour)
        ax.set_ylabel(f"layer of {plain(study, 30)}")
        ax.set_xlabel(f"layer of {plain(other, 30)}")
    caption = (
        "A number is how many heads of a layer of the first model (row) are matched to heads of a layer of the second "
        "model (column); grey: none. The matching minimises the sum of distances. Heads of the larger model without a "
        "match are not counted."
    )
    return _comparison_figure(
        "matches", f"{study}-{other}-{stack}", title, caption, sheet.figure, some
    )


def _layer_changes(comparison: Comparison, stack: str) -> RenderedFigure:
    table = comparison.layer_changes[comparison.layer_changes["stack"] == stack]
    title = "Which layers changed"
    subtitle = f"{' → '.join(plain(name, 40) for name in comparison.names)}, {stack} · the same texts in both models"
    panels = (("js", "Jensen-Shannon divergence of rows, nats"), ("cosine", "cosine of the maps"))
    x, colour = table["layer"], SERIES[1]
    with CHANGES.open(title, subtitle, 1, 2) as sheet:
        for column, (name, heading) in enumerate(panels):
            ax = sheet.add_panel(0, column)
            line: dict[str, Any] = {"color": colour, "linewidth": 1.8, "markersize": 3}
            ax.plot(
                x, table[f"floor_{name}"], "--", color=MUTED, linewidth=1.2, label="other texts"
            )
            ax.fill_between(
                x, table[f"{name}_low"], table[f"{name}_high"], color=colour, alpha=0.25
            )
            ax.plot(x, table[name], "o-", label="the change", **line)
            ax.set_title(heading, fontweight="bold")
            ax.set_ylim(0, 1.03 if name == "cosine" else None)
            ax.set_xlabel("layer")
            ax.grid(axis="y", color=RULE, linewidth=0.5, alpha=0.7)
            whole_numbers(ax.xaxis, 12)
            if column == 0:
                _draw_legend(sheet, ax, -0.42)
    caption = (
        "Orange: the difference between the two models on the same text, averaged over heads, with a 95 % band over "
        "texts. Dashed: for comparison, the difference between different texts of equal length in the first model."
    )
    return _comparison_figure("layer-changes", stack, title, caption, sheet.figure, table)


def _changes(comparison: Comparison, stack: str) -> RenderedFigure:
    """In nats, not as a multiple of the floor, which is almost 0 for a head that attends by position alone."""
    table = comparison.changes[comparison.changes["stack"] == stack]
    columns = ("js", "floor_js") if table["floor_js"].notna().any() else ("js",)
    pivots = [table.pivot(index="layer", columns="head", values=name) for name in columns]
    grids = [pivot.to_numpy(dtype=float) for pivot in pivots]
    most = max(float(np.nanmax(grid)) for grid in grids)
    title = "Which heads changed"
    subtitle = f"{' → '.join(plain(name, 40) for name in comparison.names)}, {stack} · divergence of the rows, nats"
    headings = ("the change", "other texts")
    panels = [Panel(heading, grid) for heading, grid in zip(headings, grids, strict=False)]
    figure = draw_panels(panels, Scale("other", 0.0, most or 1.0), title, subtitle)
    caption = (
        "Left: the Jensen–Shannon divergence between the attention of a head in the two models, on the same texts. 0: "
        "the same attention; 0.69, the maximum: attention to entirely different tokens. Right: for comparison, the "
        "divergence between different texts of equal length in the first model, on the same scale."
    )
    return _comparison_figure("changes", stack, title, caption, figure, table)
