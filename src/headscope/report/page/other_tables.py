"""Tables that have no section of their own on the page: their first rows, and all rows as a file."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headscope.report.table_cells import NONE, Cell, Part, is_missing
from headscope.report.text import plain, slug, with_noun
from headscope.study.schema.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 50


def other_tables(tables: Mapping[str, pd.DataFrame], placed: Collection[str]) -> Iterator[Part]:
    """A part for each table that is not on the page already."""
    for name, table in tables.items():
        if name in placed or not len(table):
            continue
        columns = tuple(plain(column, 40) for column in table.columns)
        some = table.head(MOST_ROWS).itertuples(index=False, name=None)
        rows = [[_cell(value) for value in row] for row in some]
        kinds = [dtype.kind for dtype in table.dtypes]
        words = frozenset(i for i, kind in enumerate(kinds) if kind not in "fiub")
        rest = f"; the first {MOST_ROWS} are shown" if len(table) > MOST_ROWS else ""
        bare, _, study = name.partition(" (")
        about = f"{TABLES[bare].sentence} " if bare in TABLES else ""
        note = f"{about}{with_noun(len(table), 'row')}{rest}."
        title = TABLES[bare].title if bare in TABLES else bare.replace("_", " ")
        heading = plain(title + (f" ({study}" if study else ""), 120)
        ident, file = f"table-{slug(name)}", f"{name}.csv"
        yield Part(ident, heading, note, columns, rows, file, figures=(), words=words)


def _cell(value: Any) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", str(value))
    if isinstance(value, int | float) and math.isfinite(value):
        return Cell(f"{value:.4g}".replace("-", "−"), float(value))
    return Cell(plain(value, 60), plain(value, 60))
