"""The chapter of one model: its figures, parts, tables and numbers, as the template reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.page.first_screen import (
    explorer_command,
    full_name,
    next_links,
    short_heading,
    subtitle,
)
from headscope.report.page.other_tables import other_tables
from headscope.report.page.payload import PAGE_BYTES as PAGE_BYTES
from headscope.report.page.payload import payload
from headscope.report.page.static_map import static_map
from headscope.report.page.templates import to_json
from headscope.report.run_facts import few_texts, heads_of, unknown_tokens
from headscope.report.scale import scale_of, sentence_of, title_of
from headscope.report.sections import parts_of, topics_of
from headscope.report.study_access import entry_of, model_name, stacks_of, statistics_of
from headscope.report.table_cells import Part
from headscope.report.text import plain, slug, with_noun

if TYPE_CHECKING:
    import pandas as pd

    from headscope.analysis.join import Chapter
    from headscope.report.rendered_figures import RenderedFigure
    from headscope.study.study import Study

MOST_SVG_BYTES = 1_500_000
BYTES_OF_CELL = 60  # about; of a table, with its tags


@dataclass(frozen=True)
class DrawnFigures:
    """The figures of a chapter's study, and those of each of its other studies."""

    figures: list[RenderedFigure]
    others: list[list[RenderedFigure]]


def draw_figures(chapter: Chapter) -> DrawnFigures:
    """Draw all figures of a chapter."""
    from headscope.report.rendered_figures import render_figures

    others = []
    for member in chapter.others:
        prefixes = tuple(name for part in parts_of(member.study) for name in part.figures)
        others.append(render_figures(member.study, prefixes))
    return DrawnFigures(render_figures(chapter.study), others)


def describe_study(study: Study, *, with_model: bool = True) -> str:
    """One sentence: what was studied of which model, on what."""
    statistics = with_noun(study.heads["statistic"].nunique(), "statistic")
    topics = "; ".join(topics_of(study.record)) or f"{statistics} of its heads"
    if not with_model:
        return f"{topics}."
    removed = entry_of(study.record, "model", "cut")
    return f"{model_name(study)}{f', without {plain(removed, 60)}' if removed else ''}: {topics}."


def chapter_view(
    chapter: Chapter,
    drawn: DrawnFigures,
    number: int,
    most: int,
    directories: list[str],
) -> dict[str, Any]:
    """The variables of the template.

    number       its position on the page, from which ids are made
    most         bytes that it may have
    directories  of its studies, as a command of the page names them
    """
    from markupsafe import Markup

    study, prefix = chapter.study, f"m{number}-" if number else ""
    prefixes = [prefix, *(f"{prefix}o{i}-" for i in range(len(drawn.others)))]
    is_heavy = (
        sum(
            len(figure.inline(of_study))
            for of_study, figures in zip(prefixes, (drawn.figures, *drawn.others), strict=True)
            for figure in figures
            if not figure.is_raster
        )
        > MOST_SVG_BYTES
    )
    shown = [_figure(figure, is_heavy, prefix) for figure in drawn.figures]
    parts = [
        (part, [figure for figure in shown if figure["stem"].startswith(part.figures)])
        for part in parts_of(study)
    ]
    placed = {figure["name"] for _, of_part in parts for figure in of_part}
    parts += _other_parts(chapter, drawn, is_heavy, prefix)
    tables = _tables(chapter)
    sheets = list(other_tables(tables, {part.file.removesuffix(".csv") for part, _ in parts}))
    figures = [*(figure for _, of_part in parts for figure in of_part), *shown]
    taken = sum(len(str(value)) for figure in figures for value in figure.values())
    for part in (*(part for part, _ in parts), *sheets):
        taken += BYTES_OF_CELL * len(part.columns) * len(part.rows)
    numbers = payload(study, tables, taken, most)
    is_cut = set(study.heads["statistic"]) == {"cut"}
    heat_maps = [figure for figure in shown if figure["stem"].startswith("heat-")]
    return {
        "number": number,
        "prefix": prefix,
        "name": plain(chapter.name, 80) or model_name(study),
        "full_name": full_name(study),
        "subtitle": subtitle(study),
        "map": static_map(numbers),
        "next": next_links([part.name for part, _ in parts]),
        "command": explorer_command(study, directories),
        "is_cut": is_cut,
        "lengths": plain(chapter.lengths, 600),
        "asked": describe_study(study, with_model=False).rstrip("."),
        "heads": len(heads_of(study)),
        "few": few_texts(study),
        "unknown": unknown_tokens(study),
        "one_stack": len(stacks_of(study)) == 1,
        "parts": parts,
        "links": [(part.name, short_heading(part.name, part.heading)) for part, _ in parts],
        "sheets": sheets,
        "stories": [f for f in shown if f["name"] not in placed and f not in heat_maps],
        "heat_maps": [] if is_cut else heat_maps,  # the explorer shows a cut
        "glossary": _glossary(study),
        "files": {f"{table['name']}.csv" for table in numbers["tables"]},
        "data": Markup(to_json(numbers)),  # to_json leaves no character that HTML reads
    }


def _tables(chapter: Chapter) -> dict[str, pd.DataFrame]:
    """All tables by name; names of tables of other studies end with the study."""
    others = {
        table_name(name, member.name): table
        for member in chapter.others
        for name, table in member.study.tables.items()
    }
    return {**chapter.study.tables, **others}


def table_name(table: str, study: str) -> str:
    """The name of another study's table on the page."""
    return f"{table} ({plain(study, 60)})"


def _other_parts(
    chapter: Chapter, drawn: DrawnFigures, is_heavy: bool, prefix: str
) -> Iterator[tuple[Part, list[dict[str, Any]]]]:
    """The parts of tables that are not in the joined study, each with its study's name."""
    for number, (member, figures) in enumerate(zip(chapter.others, drawn.others, strict=True)):
        for part in parts_of(member.study):
            table = part.file.removesuffix(".csv")
            if table not in member.study.tables:
                continue  # a part made of heads.csv: these rows are in the joined one
            of_part = [
                _rename_source(figure, chapter.study, member.name)
                for figure in figures
                if figure.name.startswith(part.figures)
            ]
            own = [_figure(figure, is_heavy, f"{prefix}o{number}-") for figure in of_part]
            heading = f"{part.heading} · {plain(member.name, 60)}"
            name = f"o{number}-{part.name}-{slug(member.name)}"
            file = f"{table_name(table, member.name)}.csv"
            yield replace(part, name=name, heading=heading, file=file), own


def _rename_source(figure: RenderedFigure, joined: Study, study: str) -> RenderedFigure:
    """The figure with the names that its tables and statistics have on the page."""
    if figure.source is None:
        return figure
    names = figure.source.names
    if figure.source.kind == "table":
        names = tuple(table_name(name, study) for name in names)
    else:
        present = set(statistics_of(joined))
        pairs = [(name, f"{name} ({study})") for name in names]
        names = tuple(qualified if qualified in present else name for name, qualified in pairs)
    return replace(figure, source=figure.source._replace(names=names))


def _figure(figure: RenderedFigure, is_heavy: bool, prefix: str) -> dict[str, Any]:
    """A figure for the template: vectors, or a picture if the page would become too heavy with vectors."""
    from markupsafe import Markup

    svg = "" if figure.is_raster else figure.inline(prefix)
    uri = figure.data_uri() if figure.is_raster or is_heavy else ""
    is_picture = figure.is_raster or (is_heavy and len(uri) < len(svg))
    picture = {"uri": uri} if is_picture else {"svg": Markup(svg)}  # ours: shapes and text only
    source = figure.source
    return {
        "name": f"{prefix}{figure.name}",
        "stem": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "kind": source.kind if source else "",
        "names": json.dumps([plain(name) for name in source.names]) if source else "[]",
        **picture,
    }


def _glossary(study: Study) -> list[tuple[str, str, str, str]]:
    """(title, name, unit, definition) of the statistics of the study."""
    rows = []
    for name in statistics_of(study):
        definition = sentence_of(name) or title_of(name)
        unit = scale_of(name, np.array([])).unit
        rows.append((plain(title_of(name)), plain(name), unit, plain(definition, 600)))
    return rows
