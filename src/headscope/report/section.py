"""The contribution of one topic to the page of a study: figures, tables, findings and facts."""

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
    """Decorator that passes a table to a maker of parts or findings; None if the table is missing or empty."""

    def decorate(make: Callable[[Study, pd.DataFrame], T]) -> Callable[[Study], T | None]:
        @wraps(make)
        def wrapper(study: Study) -> T | None:
            table = study.tables.get(name)
            return None if table is None or not len(table) else make(study, table)

        return wrapper

    return decorate


class Fact(NamedTuple):
    """A few words on what was studied, if the run record has an entry `kind`; may be empty."""

    kind: str
    words: Callable[[Mapping[str, Any]], str]


def fact_of_task(kind: str, words: str) -> Fact:
    """The words, followed by the task in the record."""
    return Fact(
        kind, lambda record: f"{words} {plain(entry_of(record, kind, 'task') or 'a task', 40)}"
    )


@dataclass(frozen=True)
class Section:
    """A topic of the page, as the last statement of its file: `SECTION = Section(...)`.

    The keys are positions on the page: figures, parts, findings and facts of all topics are ordered by them.

    figures   classes of figures
    parts     functions that make a table with its heading and note; None if the study has no such table
    findings  functions that yield sentences; None without any
    facts     a few words on what was studied
    """

    figures: Mapping[int, type[StudyFigure]] = field(default_factory=dict)
    parts: Mapping[int, PartMaker] = field(default_factory=dict)
    findings: Mapping[int, FindingMaker] = field(default_factory=dict)
    facts: Mapping[int, Fact] = field(default_factory=dict)
