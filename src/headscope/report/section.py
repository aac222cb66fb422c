"""What one topic contributes to the page of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headscope.report.study_access import entry_of
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd

    from headscope.report.drawing.study_figure import StudyFigure
    from headscope.report.finding import Finding
    from headscope.report.table_cells import Part
    from headscope.study.study import Study

    PartMaker = Callable[[Study], Part | None]
    FindingMaker = Callable[[Study], Iterable[Finding] | None]

T = TypeVar("T")


def needs_table(
    name: str,
) -> Callable[[Callable[[Study, pd.DataFrame], T]], Callable[[Study], T | None]]:
    """Decorator of makers of parts and findings: they get the table; None where the study has none, or an empty one."""

    def decorate(make: Callable[[Study, pd.DataFrame], T]) -> Callable[[Study], T | None]:
        @wraps(make)
        def checked(study: Study) -> T | None:
            table = study.tables.get(name)
            return None if table is None or not len(table) else make(study, table)

        return checked

    return decorate


class Fact(NamedTuple):
    """What was studied, in a few words, if the run record has an entry `kind`; empty: nothing to say."""

    kind: str
    words: Callable[[Mapping[str, Any]], str]


def fact_of_task(kind: str, words: str) -> Fact:
    """The words, and the task as the record has it."""
    return Fact(
        kind, lambda record: f"{words} {plain(entry_of(record, kind, 'task') or 'a task', 40)}"
    )


@dataclass(frozen=True)
class Section:
    """A topic of the page, as the last statement of its file: `SECTION = Section(...)`.

    The keys are positions on the page: figures, parts, findings and facts of all topics are ordered by them.

    figures   classes of figures
    parts     functions that make a table with its heading and note; None where the study has no such table
    findings  functions that yield sentences; None where there is nothing to say
    facts     what was studied, in a few words
    """

    figures: Mapping[int, type[StudyFigure]] = field(default_factory=dict)
    parts: Mapping[int, PartMaker] = field(default_factory=dict)
    findings: Mapping[int, FindingMaker] = field(default_factory=dict)
    facts: Mapping[int, Fact] = field(default_factory=dict)
