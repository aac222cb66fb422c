"""Gates over a training: when the gate of each head closes, after Voita's figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.analysis.roles import UNDETERMINED
from headscope.report.drawing.palette import MISSING, MUTED
from headscope.report.drawing.sheet import open_sheet
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import SWITCH, name_blocks
from headscope.report.finding import Finding
from headscope.report.metric_changes import change_of, describe_change, examples_of, metric_clause
from headscope.report.section import Section, fact_of_task, needs_table
from headscope.report.shared_heads import HeadKey, head_key, keys_of
from headscope.report.study_access import entry_of, model_name, records_of
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 0.95, 0.2, 0.6, 0.075
NAMED, NAMED_ROW = (
    1.2,
    0.11,
)  # in inches: space for roles at the right, height of a row if there are roles
COLUMNS = 800  # width of the picture in pixels; a picture has no seams, unlike separate cells


class GatesOverTime(StudyFigure):
    """A row for every head, its gate from the first step to the last."""

    table = "gates"
    title = "Which heads close when"
    caption = (
        "Each row is a head, ordered by layer; the x axis is the training step. Blue: the gate is open and the head's "
        "output passes. Grey: the gate is closed. At the end every gate is open or closed. If the roles of the heads "
        "are known, those of open heads are on the right."
    )

    def __init__(self, aim: str) -> None:
        self.aim, self.name = aim, f"gates-{slug(aim)}"

    @classmethod
    def for_study(cls, study: Study) -> Iterable[GatesOverTime]:
        table = study.tables.get(cls.table)
        return [] if table is None else [cls(str(aim)) for aim in table["aim"].unique()]

    def draw(self, study: Study) -> Figure:
        table = study.tables["gates"].query("aim == @self.aim")
        grid = table.pivot_table(index=["stack", "layer", "head"], columns="step", values="gate")
        grid = grid.reindex(keys_of(table))
        stay = int((grid.iloc[:, -1] > 0.5).sum())
        subtitle = (
            f"{model_name(study)} · {plain(self.aim, 60)} · {stay} of {len(grid)} gates stay open"
        )
        roles = _roles(study, grid)
        right = RIGHT + (NAMED if roles else 0.0)
        body = max(1.6, (NAMED_ROW if roles else ROW) * len(grid))
        steps = grid.columns.to_numpy(dtype=float)
        with open_sheet(self.title, subtitle, WIDTH, body + BOTTOM, 0.15) as sheet:
            ax = sheet.add_axes(LEFT, 0, WIDTH - LEFT - right, body)
            picture: dict[str, Any] = {"cmap": SWITCH, "vmin": 0, "vmax": 1, "aspect": "auto"}
            picture["extent"] = (0.0, float(steps[-1]), float(len(grid)), 0.0)
            ax.set_facecolor(MISSING)
            ax.imshow(grid.to_numpy()[:, _columns(steps)], interpolation="nearest", **picture)
            ax.set_xlabel("step")
            several = table["stack"].nunique() > 1
            prefixes = [stack if several else "layer" for stack, _, _ in grid.index]
            layers = [layer for _, layer, _ in grid.index]
            name_blocks(ax, [f"{p} {layer}" for p, layer in zip(prefixes, layers, strict=True)])
            for row, role in roles.items():
                text: dict[str, Any] = {"va": "center", "fontsize": 6, "color": MUTED}
                ax.text(steps[-1], row + 0.5, f" {plain(role, 24)}", **text)
            return sheet.figure


def _columns(steps: NDArray[np.float64]) -> NDArray[np.int64]:
    """For columns that are evenly spread from 0 to the last step, the index of the nearest step."""
    edges = (steps[1:] + steps[:-1]) / 2
    middles = (np.arange(COLUMNS) + 0.5) / COLUMNS * steps[-1]
    nearest: NDArray[np.int64] = np.searchsorted(edges, middles)
    return nearest


def _roles(study: Study, grid: pd.DataFrame) -> dict[int, str]:
    """{row of the figure: roles of the head}, for heads whose gate stays open and that have roles."""
    roles: dict[HeadKey, list[str]] = defaultdict(list)
    for row in records_of(study, "gate_roles"):
        if row["role"] != UNDETERMINED:
            roles[head_key(row)].append(row["role"])
    stays = grid.iloc[:, -1] > 0.5
    return {
        i: ", ".join(roles[head])
        for i, head in enumerate(grid.index)
        if stays[head] and head in roles
    }


@needs_table("front")
def findings(study: Study, table: pd.DataFrame) -> Iterator[Finding]:
    """The metric with the fewest heads that learned gates keep."""
    if entry_of(study.record, "pruning", "search") != "gates":
        return
    row = table.nlargest(1, "removed").to_dict("records")[0]
    left = int(row["left"])
    sentence = (
        f"Learned gates keep {left} of {left + int(row['removed'])} heads, and "
        f"{metric_clause(study, 'pruning', row)}"
    )
    strength, after = (
        change_of(row).strength(0.0),
        describe_change(row, examples_of(study, "pruning")),
    )
    yield Finding("", sentence, (), kind="learned", strength=strength, after=after)


SECTION = Section(
    figures={23: GatesOverTime},
    findings={140: findings},
    facts={60: fact_of_task("gates", "which heads learned gates keep for")},
)
