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
from headscope.report.page import comparison
from headscope.report.page.chapter import (
    PAGE_BYTES,
    DrawnFigures,
    chapter_view,
    describe_study,
    draw_figures,
)
from headscope.report.page.templates import TEMPLATES, environment
from headscope.report.rendered_figures import announce
from headscope.report.run_facts import Facts, reproduction
from headscope.report.sections import findings_of
from headscope.report.study_access import entry_of, model_name
from headscope.report.text import plain
from headscope.report.top_findings import select_top
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    from headscope.report.finding import Finding
    from headscope.study.study import Study

SCRIPT = Path(__file__).parents[1] / "static" / "study.js"  # built from web/src/report


def render(
    result: Study | Joined,
    figures: Sequence[DrawnFigures] | None = None,
    most: int = PAGE_BYTES,
) -> str:
    """The whole page of one study or of several as text.

    figures  of each chapter, if they are drawn already
    most     bytes that it may have: maps are cropped to fit
    """
    from markupsafe import Markup

    joined = _shareable(_as_joined(result))
    script, style = SCRIPT.read_text("utf-8"), (TEMPLATES / "study.css").read_text("utf-8")
    figures = figures or [draw_figures(chapter) for chapter in joined.chapters]
    announce("writing the page")
    room = (most - len(script) - len(style)) // max(len(joined.chapters), 1)
    chapters = [
        chapter_view(chapter, of, number, room)
        for number, (chapter, of) in enumerate(zip(joined.chapters, figures, strict=True))
    ]
    compared = [
        comparison.comparison_view(one, comparison.render_comparison_figures(one), f"c{i}-")
        for i, one in enumerate(joined.comparisons)
    ]
    of_models = [finding for one in joined.comparisons for finding in comparison.findings_of(one)]
    first, rest = select_top([list(_findings(chapter)) for chapter in joined.chapters], of_models)
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
                (plain(member.name, 80), describe_study(member.study, with_model=several))
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


def _as_joined(result: Study | Joined) -> Joined:
    if isinstance(result, Joined):
        return result
    command = str(result.record.get("command") or "")
    return Joined([Chapter(result, (Member("", result),))], command=command)


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


def _pages(study: Study) -> Facts:
    """Further pages beside this one: (title, file name). Anything but a plain file name is left out."""
    pages = study.record.get("pages")
    found = [
        (entry_of(page, "title"), entry_of(page, "href"))
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
