"""Base classes of the figures of a study: title, caption, the source of the numbers, and drawing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from headscope.report.study_access import stacks_with
from headscope.report.text import slug

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study


class DataSource(NamedTuple):
    """The source of a figure's numbers, so that the page can offer them as a csv file.

    `heads`: rows of these statistics (none: all); `table`: the table of this name; `map`, `offset`: those of a stack.
    """

    kind: Literal["heads", "table", "map", "offset"]
    names: tuple[str, ...] = ()


class StudyFigure:
    """One figure of a study.

    name        file name without its ending: lower case letters, digits and hyphens
    title       what is shown
    caption     how to read it
    is_raster   whether the page should carry a PNG because vectors would be heavy
    table       the table it is drawn from, or
    statistics  the statistics in heads.csv it is drawn from, any of which must be present
    """

    name: str
    title: str
    caption: str
    is_raster: bool = False
    table: str = ""
    statistics: tuple[str, ...] = ()

    @classmethod
    def for_study(cls, study: Study) -> Iterable[StudyFigure]:
        """The figures of this kind for a study, before `applies`: one, unless a subclass has one per stack or aim."""
        return [cls()]

    def applies(self, study: Study) -> bool:
        if self.table:
            return len(study.tables.get(self.table, ())) > 0
        return any(stacks_with(study, name) for name in self.statistics)

    def source(self, study: Study) -> DataSource:
        if self.table:
            return DataSource("table", (self.table,))
        return DataSource("heads", self.statistics)

    def draw(self, study: Study) -> Figure:
        raise NotImplementedError


class StackFigure(StudyFigure):
    """A figure for each stack that `stacks` names: STEM-STACK."""

    stem: ClassVar[str]

    def __init__(self, stack: str) -> None:
        self.stack, self.name = stack, f"{self.stem}-{slug(stack)}"

    @classmethod
    def stacks(cls, study: Study) -> Iterable[str]:
        """The stacks with a figure: those with all of its statistics."""
        first, *others = (stacks_with(study, name) for name in cls.statistics)
        return [stack for stack in first if all(stack in other for other in others)]

    @classmethod
    def for_study(cls, study: Study) -> Iterable[StudyFigure]:
        return [cls(stack) for stack in cls.stacks(study)]

    def applies(self, study: Study) -> bool:
        return self.stack in self.stacks(study)
