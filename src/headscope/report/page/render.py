"""The page of studies: one self-contained index.html that opens from disk. Equal studies give equal bytes.

Everything that comes from a model, a file or a run record is text. It is escaped by the template, or it is JSON in a
script element that no character can end. The only script is allowed by its hash; nothing else may run or load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headscope.analysis.join import Chapter, Joined, Member
from headscope.report.page.chapter import (
    PAGE_BYTES,
    DrawnFigures,
    chapter_view,
    describe_study,
    draw_figures,
)
from headscope.report.page.comparison import comparison_reproduction, comparison_view
from headscope.report.page.comparison import findings_of as comparison_findings
from headscope.report.page.templates import STATIC, TEMPLATES, csp_hash, environment
from headscope.report.rendered_figures import announce
from headscope.report.run_facts import Facts, run_facts
from headscope.report.sections import findings_of
from headscope.report.study_access import entry_of, model_name
from headscope.report.text import plain
from headscope.report.top_findings import select_top
from headscope.study.local_paths import without_paths

if TYPE_CHECKING:
    from headscope.report.finding import Finding
    from headscope.study.study import Study

# Nothing is loaded. The only script is allowed by its hash. Inline styles are allowed, since figures have some.
POLICY = (
    "default-src 'none'; script-src '{}'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def render(
    result: Study | Joined,
    figures: Sequence[DrawnFigures] | None = None,
    most: int = PAGE_BYTES,
) -> str:
    """The page of one study or of several, as HTML.

    figures  the figures of each chapter, if they are drawn already
    most     largest number of bytes of the page: maps are cropped to fit
    """
    from markupsafe import Markup

    from headscope.report.drawing.compare_figures import draw_comparison

    if not isinstance(result, Joined):
        command = str(result.record.get("command") or "")
        result = Joined([Chapter(result, (Member("", result),))], command=command)
    joined = _remove_local_paths(result)
    script = (STATIC / "study.js").read_text("utf-8")
    style = (TEMPLATES / "study.css").read_text("utf-8")
    figures = figures or [draw_figures(chapter) for chapter in joined.chapters]
    announce("writing the page")
    share = (most - len(script) - len(style)) // max(len(joined.chapters), 1)
    is_alone = sum(len(chapter.members) for chapter in joined.chapters) == 1
    chapters = [
        chapter_view(
            chapter,
            drawn,
            number,
            share,
            ["."] if is_alone else [member.name for member in chapter.members],
        )
        for number, (chapter, drawn) in enumerate(zip(joined.chapters, figures, strict=True))
    ]
    comparisons = [
        comparison_view(compared, list(draw_comparison(compared)), f"c{number}-")
        for number, compared in enumerate(joined.comparisons)
    ]
    of_models = [f for compared in joined.comparisons for f in comparison_findings(compared)]
    first, rest = select_top([list(_findings(chapter)) for chapter in joined.chapters], of_models)
    several = len(joined.chapters) > 1
    names = [plain(c.name, 80) if several else model_name(c.study) for c in joined.chapters]
    members = [member for chapter in joined.chapters for member in chapter.members]
    records = [(plain(member.name, 80), run_facts(member.study)) for member in members]
    if not joined.chapters:  # comparisons alone, whose studies are elsewhere
        first, rest = [*first, *rest], []  # a page of a comparison lists all its findings, too
        names = list(dict.fromkeys(name for view in comparisons for name in view["names"]))
        records = [
            (" · ".join(view["names"]), comparison_reproduction(compared))
            for view, compared in zip(comparisons, joined.comparisons, strict=True)
        ]
    return (
        environment()
        .get_template("study.html")
        .render(
            names=names,
            is_alone=is_alone,
            studied=[
                (plain(member.name, 80), describe_study(member.study, with_model=several))
                for member in members
            ],
            first=first,
            rest=rest,
            is_over_uniform=any("times uniform" in str(finding) for finding in (*first, *rest)),
            chapters=chapters,
            comparisons=comparisons,
            notes=[plain(note, 600) for note in _notes(joined)],
            records=records,
            pages=[page for chapter in joined.chapters for page in _pages(chapter.study)],
            policy=POLICY.format(csp_hash(script)),
            style=Markup(style),  # ours: no data in it
            script=Markup(script),
        )
    )


def _remove_local_paths(joined: Joined) -> Joined:
    """The same with names of files instead of local paths, because a page may be sent to others."""
    from headscope.study.study import Study

    def of_study(study: Study) -> Study:
        return Study(study.heads, study.maps, without_paths(study.record), study.tables)

    def of_members(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(member._replace(study=of_study(member.study)) for member in members)

    chapters = [
        replace(
            chapter,
            study=of_study(chapter.study),
            members=of_members(chapter.members),
            others=of_members(chapter.others),
        )
        for chapter in joined.chapters
    ]
    return replace(joined, chapters=chapters, command=without_paths(joined.command, "command"))


def _findings(chapter: Chapter) -> Iterator[Finding]:
    """The findings of the joined study, then those of members whose tables differ from it (`Chapter.others`)."""
    findings = list(findings_of(chapter.study))
    yield from findings
    sentences = {finding.sentence for finding in findings}
    for member in chapter.others:
        yield from (f for f in findings_of(member.study) if f.sentence not in sentences)


def _notes(joined: Joined) -> list[str]:
    """Notes on the joining of the studies and on their comparison."""
    of_chapters = [note for chapter in joined.chapters for note in chapter.notes]
    of_models = [note for compared in joined.comparisons for note in compared.notes]
    return [*joined.notes, *of_chapters, *of_models]


def _pages(study: Study) -> Facts:
    """Further pages in the same directory: (title, file name). Anything but a plain file name is left out."""
    pages = study.record.get("pages")
    links = [
        (plain(entry_of(page, "title")), str(entry_of(page, "href")))
        for page in (pages if isinstance(pages, list) else [])
    ]
    return [(title, href) for title, href in links if re.fullmatch(r"[\w-]+\.html", href, re.ASCII)]
