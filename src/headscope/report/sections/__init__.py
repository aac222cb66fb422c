"""The topics of the page, one per file: a file that defines `SECTION` is found by itself.

To add a topic, add a file here whose name does not begin with an underscore. It may hold figures (`StudyFigure`),
tables (`Part`), findings and the words for what was studied: see `Section`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.report.section import Section

if TYPE_CHECKING:
    from headscope.report.drawing.study_figure import StudyFigure
    from headscope.report.finding import Finding
    from headscope.report.table_cells import Part
    from headscope.study.study import Study

T = TypeVar("T")


@cache
def sections() -> dict[str, Section]:
    """Every topic by the name of its file."""
    names = sorted(
        module.name for module in iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: import_module(f"{__name__}.{name}").SECTION for name in names}


def figures_of(study: Study) -> list[StudyFigure]:
    """The figures that apply to a study, in the order in which they are shown."""
    kinds = _in_order(section.figures for section in sections().values())
    figures = [figure for kind in kinds for figure in kind.for_study(study)]
    return [figure for figure in figures if figure.applies(study)]


def parts_of(study: Study) -> list[Part]:
    """The tables of the page: those that are present in the study and not empty."""
    parts = [make(study) for make in _in_order(section.parts for section in sections().values())]
    return [part for part in parts if part is not None and part.rows]


def findings_of(study: Study) -> list[Finding]:
    """Sentences on what stands out in a study, read off its tables; `top_findings` selects those that come first."""
    makers = _in_order(section.findings for section in sections().values())
    return [finding for make in makers for finding in make(study) or ()]


def topics_of(record: Mapping[str, Any]) -> list[str]:
    """A few words on what was studied, for each kind of result in the run record."""
    facts = _in_order(section.facts for section in sections().values())
    words = [fact.words(record) for fact in facts if isinstance(record.get(fact.kind), Mapping)]
    return [text for text in words if text]


def _in_order(entries: Iterable[Mapping[int, T]]) -> list[T]:
    """The entries of all topics by their position on the page."""
    by_position = sorted(
        ((position, entry) for of_topic in entries for position, entry in of_topic.items()),
        key=lambda item: item[0],
    )
    return [entry for _, entry in by_position]
