"""Writing of results: tables, run record, figures and page, complete or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.analysis.compare import Comparison
from headscope.analysis.join import Joined
from headscope.atomic_dir import atomic_directory
from headscope.report.look.view import Look
from headscope.report.page_file import check_page_path, page_path, write_page
from headscope.report.text import csv_text, slug
from headscope.study.result import Result
from headscope.study.study import Study
from headscope.study.study_dir import write_tables

if TYPE_CHECKING:
    from headscope.report.rendered_figures import RenderedFigure

MOST_BYTES = 7_500_000  # of a report of several studies: it is mailed, so below 8 MB


def write(result: Result, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write a result: a directory with tables, run.json, figures and index.html; a joined report or a look as one page.

    Studies and comparisons have figures and a page; other results (evaluations, probes, times) have tables only.
    A page without an ending gets .html; a directory must not have the ending of a file.

    Parameters
    ----------
    result
        What a function of headscope returned.
    out
        The directory, or the page of joined studies or of a look. It must not exist yet, unless `overwrite`.
    overwrite
        Replace what is there. It stays as it is if writing fails.

    Returns
    -------
    Path
        `out`, of a page with its ending

    Raises
    ------
    HeadscopeError
        If `out` exists already, or has an ending that does not fit.

    Examples
    --------
    >>> headscope.write(headscope.Study("study"), "page")  # doctest: +SKIP
    """
    if isinstance(result, Joined):
        from headscope.report.page.render import render

        page = page_path(out)
        check_page_path(page, overwrite=overwrite)
        write_page(page, render(result, most=MOST_BYTES).encode("utf-8"))
        return page
    if isinstance(result, Look):
        check_page_path(page_path(out), overwrite=overwrite)
        return result.save(out)
    with atomic_directory(out, overwrite=overwrite) as folder:
        write_into(result, folder)
    return Path(out)


def write_joined_tables(joined: Joined, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the tables of joined studies as OUT/NAME.csv; of several models as OUT/MODEL-NAME.csv."""
    with atomic_directory(out, overwrite=overwrite) as folder:
        for name, table in joined.tables.items():
            model, _, table_name = name.rpartition(": ")
            stem = f"{slug(model)}-{table_name}" if model else table_name
            (folder / f"{stem}.csv").write_text(csv_text(table), "utf-8")
        _write_record(joined, folder)
    return Path(out)


def write_joined_figures(joined: Joined, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the figures of joined studies as OUT/NAME.png; of several models as OUT/MODEL-NAME.png."""
    from headscope.report.page.chapter import draw_figures

    with atomic_directory(out, overwrite=overwrite) as folder:
        for chapter in joined.chapters:
            drawn = draw_figures(chapter)
            prefix = f"{slug(chapter.name)}-" if len(joined.chapters) > 1 else ""
            figures = {
                figure.name: figure for of in (*drawn.others, drawn.figures) for figure in of
            }
            for name, figure in figures.items():
                (folder / f"{prefix}{name}.png").write_bytes(figure.png)
        _write_record(joined, folder)
    return Path(out)


def write_into(result: Result, folder: Path) -> None:
    """Write all files of a result into a directory that is being made (see `headscope.atomic_dir`)."""
    if isinstance(result, Study):
        write_tables(result, folder)
    else:
        for name, table in result.tables.items():
            (folder / f"{name}.csv").write_text(csv_text(table), "utf-8")
        _write_record(result, folder)
    if isinstance(result, Study | Comparison):
        write_report(result, folder)


def _write_record(result: Result, folder: Path) -> None:
    text = json.dumps(result.record, indent=2, ensure_ascii=False, default=str)
    (folder / "run.json").write_text(f"{text}\n", "utf-8")


def write_report(result: Study | Comparison, folder: Path) -> None:
    """Write folder/figures/NAME.svg (.png of heavy ones) for every figure that applies, and folder/index.html."""
    from headscope.report.drawing.compare_figures import draw_comparison
    from headscope.report.page.chapter import DrawnFigures
    from headscope.report.page.comparison import render_comparison
    from headscope.report.page.render import render
    from headscope.report.rendered_figures import announce, render_figures

    if isinstance(result, Study):
        figures = render_figures(result)
        if figures:
            announce(f"saving {len(figures)} figures")
        _write_figures(figures, folder)
        page = render(result, [DrawnFigures(figures, [])])
    else:
        figures = list(draw_comparison(result))
        _write_figures(figures, folder)
        announce("writing the page")
        page = render_comparison(result, figures)
    (folder / "index.html").write_text(page, "utf-8")


def _write_figures(figures: list[RenderedFigure], folder: Path) -> None:
    if figures:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in figures:
        name, content = figure.file
        (folder / "figures" / name).write_bytes(content)
