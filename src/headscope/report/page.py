"""The page of studies: one self-contained index.html that opens from disk; same studies, same bytes.

Everything that comes from a model, a file or a run record is text: escaped by the template, or JSON in a
script element that no sign can end. The one script is allowed by its hash, nothing else may run or load.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.join import Chapter, Joined, Member
from headscope.report import comparison
from headscope.report.chapter import PAGE_BYTES, Drawn, drawn, view_of
from headscope.report.facts import Facts, reproduction, studied
from headscope.report.findings import findings_of
from headscope.report.five import five_of
from headscope.report.grids import model_name, plain, recorded
from headscope.report.plates import announce
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    from jinja2 import Environment

    from headscope.report.finding import Finding
    from headscope.report.plates import Plate
    from headscope.study.study import Study

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = Path(__file__).parent / "static" / "study.js"  # built from web/src/report


def render(study: Study) -> str:
    """The whole page of one study as text."""
    return render_joined(alone(study))


def render_with(study: Study, plates: list[Plate]) -> str:
    """The page with figures that are drawn already."""
    return render_joined(alone(study), [Drawn(plates, [])])


def alone(study: Study) -> Joined:
    """One study as a report of its own."""
    return Joined(
        [Chapter(study, (Member("", study),))], command=str(study.record.get("command") or "")
    )


def render_joined(
    joined: Joined, figures: Sequence[Drawn] | None = None, most: int = PAGE_BYTES
) -> str:
    """The whole page of several studies as text.

    figures  of each chapter, where they are drawn already
    most     bytes that it may have: maps are cut to fit
    """
    from markupsafe import Markup

    joined = _shareable(joined)
    script, style = SCRIPT.read_text("utf-8"), (TEMPLATES / "study.css").read_text("utf-8")
    figures = figures or [drawn(chapter) for chapter in joined.chapters]
    announce("writing the page")
    room = (most - len(script) - len(style)) // max(len(joined.chapters), 1)
    chapters = [
        view_of(chapter, of, number, room)
        for number, (chapter, of) in enumerate(zip(joined.chapters, figures, strict=True))
    ]
    compared = [
        comparison.comparison_view(one, comparison.plates_of(one), f"c{i}-")
        for i, one in enumerate(joined.comparisons)
    ]
    of_models = [finding for one in joined.comparisons for finding in comparison.findings_of(one)]
    first, rest = five_of([list(_findings(chapter)) for chapter in joined.chapters], of_models)
    several = len(joined.chapters) > 1
    names = [
        plain(chapter.name, 80) if several else model_name(chapter.study)
        for chapter in joined.chapters
    ]
    members = [member for chapter in joined.chapters for member in chapter.members]
    return (
        environment()
        .get_template("study.html")
        .render(
            names=names,
            is_alone=len(members) == 1,
            studied=[
                (plain(member.name, 80), studied(member.study, with_model=several))
                for member in members
            ],
            first=first,
            rest=rest,
            is_over_uniform=any("times uniform" in str(one) for one in (*first, *rest)),
            chapters=chapters,
            comparisons=compared,
            notes=[plain(note, 600) for note in _notes(joined)],
            records=[(plain(member.name, 80), reproduction(member.study)) for member in members],
            pages=[page for chapter in joined.chapters for page in _pages(chapter.study)],
            policy=_policy(script),
            style=Markup(style),  # ours: no data in it
            script=Markup(script),
        )
    )


def _shareable(joined: Joined) -> Joined:
    """The same with names of files in the place of local paths: a page is sent to others."""
    chapters = [
        replace(
            one,
            study=_without_paths(one.study),
            members=tuple(
                member._replace(study=_without_paths(member.study)) for member in one.members
            ),
            others=tuple(
                member._replace(study=_without_paths(member.study)) for member in one.others
            ),
        )
        for one in joined.chapters
    ]
    return replace(joined, chapters=chapters, command=without_paths(joined.command, "command"))


def _without_paths(study: Study) -> Study:
    from headscope.study.study import Study

    return Study(study.heads, study.maps, without_paths(study.record), study.tables)


def _findings(chapter: Chapter) -> Iterator[Finding]:
    """Of the joined study, then of what else there is under the same names: another task's removals, say."""
    told = list(findings_of(chapter.study))
    yield from told
    said = {one.sentence for one in told}
    yield from (
        one
        for member in chapter.others
        for one in findings_of(member.study)
        if one.sentence not in said
    )


def _notes(joined: Joined) -> list[str]:
    """How the studies were joined, and what is to be known of their comparison."""
    of_models = [note for one in joined.comparisons for note in one.notes]
    return [*joined.notes, *(note for one in joined.chapters for note in one.notes), *of_models]


def environment() -> Environment:
    """Of the templates: every text is escaped, a name that is missing is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _pages(study: Study) -> Facts:
    """Further pages beside this one: (title, file name). Anything but a plain file name is left out."""
    pages = study.record.get("pages")
    found = [
        (recorded(page, "title"), recorded(page, "href"))
        for page in (pages if isinstance(pages, list) else [])
    ]
    return [
        (plain(title), str(href))
        for title, href in found
        if re.fullmatch(r"[\w-]+\.html", str(href), re.ASCII)
    ]


def _policy(script: str) -> str:
    """Nothing is loaded; the one script runs because its hash is named; figures carry inline styles."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
