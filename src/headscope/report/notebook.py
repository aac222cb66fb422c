"""The display of a study in a notebook: a title, two heat maps, the first rows; static and small."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from headscope.report.run_facts import summary
from headscope.report.study_access import entry_of, model_name, statistics_of
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

FAVOURITES = ("previous", "entropy", "confidence", "special")
ROWS = 8
DPI = 80  # two heat maps of 32 x 32 heads stay below 200 KB


def study_html(study: Study) -> str:
    """A fragment of HTML without script: everything is escaped, the figures are pictures."""
    from headscope.report.rendered_figures import png_of, png_uri
    from headscope.report.sections.heat_map import HeatMap

    present = statistics_of(study)
    statistics = ([name for name in FAVOURITES if name in present] or present)[:2]
    pictures = "".join(
        f'<img alt="{html.escape(figure.title)}" src="{png_uri(png_of(figure.draw(study), DPI))}" '
        'style="max-width:100%;margin:0 12px 12px 0;vertical-align:top">'
        for figure in HeatMap.for_study(study)
        if figure.statistic in statistics and figure.applies(study)
    )
    used = entry_of(study.record, "data", "used")
    texts = f" · {html.escape(plain(used))} texts" if used is not None else ""
    return (
        f'<div><p style="margin:0 0 8px"><strong>{html.escape(model_name(study))}</strong> · '
        f"{html.escape(summary(study))}{texts} · {len(present)} statistics</p>"
        f"<div>{pictures}</div>{_table(study)}</div>"
    )


def _table(study: Study) -> str:
    """The first rows, and the number of all rows."""
    frame = study.heads.head(ROWS)
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in frame.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in frame.itertuples(index=False, name=None)
    )
    rest = f"<p>{len(study.heads)} rows in <code>study.heads</code></p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return plain(value, 60)
