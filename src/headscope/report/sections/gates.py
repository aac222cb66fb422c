"""Gates over a training: which heads are closed when, after Voita's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from headscope.report.drawing.palette import MISSING, MUTED, RULE
from headscope.report.drawing.study_figure import StudyFigure
from headscope.report.drawing.style import SWITCH, figure_with_heading, heading_height, style
from headscope.report.finding import Finding
from headscope.report.metric_changes import change_sentence, change_strength, examples_of
from headscope.report.section import Section, fact_of_task
from headscope.report.study_access import entry_of, model_name
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from headscope.study.study import Study

WIDTH, LEFT, RIGHT, BOTTOM, ROW = 6.4, 0.95, 0.2, 0.6, 0.075
NAMED = 1.2  # inches at the right for roles, and for a row with one
NAMED_ROW = 0.11
COLUMNS = 800  # of the picture: cells one by one would leave seams between them


class GatesOverTime(StudyFigure):
    """A row for every head, its gate from the first step to the last."""

    table = "gates"
    title = "Which heads close when"
    caption = (
        "A row for every head, layer by layer; from left to right the steps of the training. Blue: the gate is open, "
        "the head's output passes; grey: it is closed. At the end every gate is open or closed. At the right, where "
        "roles are known, what a head that stays does."
    )

    def __init__(self, aim: str) -> None:
        self.aim, self.name = aim, f"gates-{slug(aim)}"

    @classmethod
    def for_study(cls, study: Study) -> Iterable[GatesOverTime]:
        table = study.tables.get(cls.table)
        return [] if table is None else [cls(str(aim)) for aim in table["aim"].unique()]

    def draw(self, study: Study) -> Figure:
        table = study.tables["gates"].query("aim == @self.aim")
        heads = table[["stack", "layer", "head"]].drop_duplicates()
        grid = table.pivot_table(index=["stack", "layer", "head"], columns="step", values="gate")
        grid = grid.reindex(list(heads.itertuples(index=False, name=None)))
        stay = int((grid.iloc[:, -1] > 0.5).sum())
        subtitle = f"{model_name(study)} · {plain(self.aim, 60)} · {stay} of {len(grid)} heads stay"
        with style():
            top = heading_height(WIDTH, subtitle) + 0.15
            roles = _roles(study, grid)
            right = RIGHT + (NAMED if roles else 0.0)
            body = max(1.6, (NAMED_ROW if roles else ROW) * len(grid))
            height = top + body + BOTTOM
            fig = figure_with_heading(WIDTH, height, self.title, subtitle)
            axes = fig.add_axes(
                (LEFT / WIDTH, BOTTOM / height, (WIDTH - LEFT - right) / WIDTH, body / height)
            )
            steps = grid.columns.to_numpy(dtype=float)
            extent = (0.0, float(steps[-1]), float(len(grid)), 0.0)
            picture = grid.to_numpy()[:, _columns(steps)]
            axes.set_facecolor(MISSING)
            axes.imshow(
                picture,
                cmap=SWITCH,
                vmin=0,
                vmax=1,
                extent=extent,
                aspect="auto",
                interpolation="nearest",
            )
            axes.set_xlabel("step")
            starts = [
                i for i, key in enumerate(grid.index) if i == 0 or key[:2] != grid.index[i - 1][:2]
            ]
            ends = [*starts[1:], len(grid)]
            several = heads["stack"].nunique() > 1
            axes.set_yticks([(a + b) / 2 for a, b in zip(starts, ends, strict=True)])
            axes.set_yticklabels(
                [
                    f"{grid.index[i][0]} {grid.index[i][1]}"
                    if several
                    else f"layer {grid.index[i][1]}"
                    for i in starts
                ],
                color=MUTED,
            )
            for row, role in roles.items():
                axes.text(
                    steps[-1],
                    row + 0.5,
                    f" {plain(role, 24)}",
                    va="center",
                    fontsize=6,
                    color=MUTED,
                )
            for start in starts[1:]:
                axes.axhline(start, color=RULE, linewidth=0.8)
        return fig


def _columns(steps: NDArray[np.float64]) -> NDArray[np.int64]:
    """For columns that are evenly spread from 0 to the last step, the moment that each is nearest to."""
    edges = (steps[1:] + steps[:-1]) / 2
    found: NDArray[np.int64] = np.searchsorted(
        edges, (np.arange(COLUMNS) + 0.5) / COLUMNS * steps[-1]
    )
    return found


def _roles(study: Study, grid: pd.DataFrame) -> dict[int, str]:
    """By row: what each head that stays does, as far as it is known."""
    if "gate_roles" not in study.tables:
        return {}
    table = study.tables["gate_roles"].query("role != 'undetermined'")
    by_head = table.groupby(["stack", "layer", "head"], sort=False)["role"].agg(", ".join).to_dict()
    stays = (grid.iloc[:, -1] > 0.5).tolist()
    return {
        row: by_head[head] for row, head in enumerate(grid.index) if stays[row] and head in by_head
    }


def findings(study: Study) -> Iterator[Finding]:
    """What the fewest heads that learned gates keep are worth."""
    table = study.tables.get("front")
    if table is None or entry_of(study.record, "pruning", "search") != "gates" or not len(table):
        return
    row = table.nlargest(1, "removed").to_dict("records")[0]
    sentence = (
        f"Learned gates keep {int(row['left'])} of {int(row['left']) + int(row['removed'])} heads: "
        f"{change_sentence(study, 'pruning', row, examples_of(study, 'pruning'))}"
    )
    yield Finding("", sentence, (), kind="learned", strength=change_strength(row))


SECTION = Section(
    figures={23: GatesOverTime},
    findings={140: findings},
    facts={60: fact_of_task("gates", "which heads learned gates keep for")},
)
