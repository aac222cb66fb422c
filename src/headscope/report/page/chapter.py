"""One model's chapter of the page: its figures, parts, tables and numbers, as the template reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.report.page.other_tables import other_tables
from headscope.report.page.payload import PAGE_BYTES as PAGE_BYTES
from headscope.report.page.payload import payload, to_json
from headscope.report.run_facts import (
    corpus_facts,
    few_texts,
    heads_of,
    model_facts,
    unknown_tokens,
)
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
    """The figures of a chapter: of its study, and of what else there is, one list each."""

    figures: list[RenderedFigure]
    others: list[list[RenderedFigure]]


def draw_figures(chapter: Chapter) -> DrawnFigures:
    """Draw all figures of a chapter."""
    from headscope.report.rendered_figures import render_figures

    others = [
        render_figures(
            member.study, tuple(name for part in parts_of(member.study) for name in part.figures)
        )
        for member in chapter.others
    ]
    return DrawnFigures(render_figures(chapter.study), others)


def describe_study(study: Study, *, with_model: bool = True) -> str:
    """One sentence: what was studied of which model, on what."""
    statistics = with_noun(study.heads["statistic"].nunique(), "statistic")
    topics = "; ".join(topics_of(study.record)) or f"{statistics} of its heads"
    if not with_model:
        return f"{topics}."
    removed = entry_of(study.record, "model", "cut")
    return f"{model_name(study)}{f', without {plain(removed, 60)}' if removed else ''}: {topics}."


def chapter_view(chapter: Chapter, drawn: DrawnFigures, number: int, room: int) -> dict[str, Any]:
    """What the template needs of a chapter.

    number  its place on the page, from which ids are made
    room    bytes that it may take
    """
    from markupsafe import Markup

    study, prefix = chapter.study, f"m{number}-" if number else ""
    figures = [*drawn.figures, *(figure for of in drawn.others for figure in of)]
    is_heavy = (
        sum(len(figure.inline()) for figure in figures if not figure.is_raster) > MOST_SVG_BYTES
    )
    shown = [_figure(figure, is_heavy, prefix) for figure in drawn.figures]
    parts = [
        (part, [one for one in shown if one["stem"].startswith(part.figures)])
        for part in parts_of(study)
    ]
    placed = {figure["name"] for _, of_part in parts for figure in of_part}
    parts += list(_others(chapter, drawn, is_heavy, prefix))
    is_cut = set(study.heads["statistic"]) == {"cut"}
    tables = _tables(chapter)
    sheets = list(other_tables(tables, {part.file.removesuffix(".csv") for part, _ in parts}))
    taken = sum(
        len(str(item)) for _, of in [*parts, (None, shown)] for one in of for item in one.values()
    )
    taken += sum(
        BYTES_OF_CELL * len(p.columns) * len(p.rows)
        for p in [*(part for part, _ in parts), *sheets]
    )
    numbers = payload(study, tables, taken, room)
    return {
        "number": number,
        "prefix": prefix,
        "name": plain(chapter.name, 80) or model_name(study),
        "model_facts": model_facts(study),
        "corpus_facts": corpus_facts(study),
        "has_attention": bool(study.maps),
        "is_cut": is_cut,
        "lengths": plain(chapter.lengths, 600),
        "asked": describe_study(study, with_model=False).rstrip("."),
        "heads": len(heads_of(study)),
        "few": few_texts(study),
        "unknown": unknown_tokens(study),
        "one_stack": len(stacks_of(study)) == 1,
        "parts": parts,
        "sheets": sheets,
        "stories": [one for one in shown if one["name"] not in placed and not _is_heat_map(one)],
        "heat_maps": []
        if is_cut
        else [one for one in shown if _is_heat_map(one)],  # the explorer shows it
        "glossary": _glossary(study),
        "files": {f"{one['name']}.csv" for one in numbers["tables"]},
        "data": Markup(to_json(numbers)),  # to_json leaves no sign that HTML reads
    }


def _tables(chapter: Chapter) -> dict[str, pd.DataFrame]:
    """All tables by name; those of other studies with these studies' names behind."""
    others = {
        table_name(name, member.name): table
        for member in chapter.others
        for name, table in member.study.tables.items()
    }
    return {**chapter.study.tables, **others}


def table_name(table: str, study: str) -> str:
    """A table of another study, as it is called on the page."""
    return f"{table} ({plain(study, 60)})"


def _others(
    chapter: Chapter, drawn: DrawnFigures, is_heavy: bool, prefix: str
) -> Iterator[tuple[Part, list[dict[str, Any]]]]:
    """The parts of what is not in the joined study, each with its study's name."""
    for number, (member, figures) in enumerate(zip(chapter.others, drawn.others, strict=True)):
        for part in parts_of(member.study):
            if part.file.removesuffix(".csv") not in member.study.tables:
                continue  # a part made of heads.csv: these rows are in the joined one
            own = [
                _figure(
                    _renamed(figure, chapter.study, member.name), is_heavy, f"{prefix}o{number}-"
                )
                for figure in figures
                if figure.name.startswith(part.figures)
            ]
            file = f"{table_name(part.file.removesuffix('.csv'), member.name)}.csv"
            heading = f"{part.heading} · {plain(member.name, 60)}"
            name = f"o{number}-{part.name}-{slug(member.name)}"
            yield replace(part, name=name, heading=heading, file=file), own


def _renamed(figure: RenderedFigure, joined: Study, study: str) -> RenderedFigure:
    """With its tables, and its statistics where they differ, under the names that these have on the page."""
    if figure.source is None:
        return figure
    known, names = set(statistics_of(joined)), figure.source.names
    if figure.source.kind == "table":
        names = tuple(table_name(name, study) for name in names)
    else:
        names = tuple(
            f"{name} ({study})" if f"{name} ({study})" in known else name for name in names
        )
    return replace(figure, source=figure.source._replace(names=names))


def _figure(figure: RenderedFigure, is_heavy: bool, prefix: str) -> dict[str, Any]:
    """A figure for the template: vectors, or a picture where the page would grow too heavy with vectors."""
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


def _is_heat_map(figure: dict[str, Any]) -> bool:
    return str(figure["stem"]).startswith("heat-")


def _glossary(study: Study) -> list[tuple[str, str, str]]:
    """(statistic, unit, definition) for what is in the study."""
    rows = []
    for name in statistics_of(study):
        rows.append(
            (
                plain(name),
                scale_of(name, np.array([])).unit,
                plain(sentence_of(name) or title_of(name), 600),
            )
        )
    return rows
