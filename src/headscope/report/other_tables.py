"""Every table that has no section of its own on the page: folded, its first rows, and all of it as a file."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headscope.report.table_cells import NONE, Cell, Part, is_missing
from headscope.report.text import plain, slug

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 50
TITLES = {
    "ablations": "Changes of loss with each head removed, example by example",
    "ceilings": "What the true importances would reach, stack by stack",
    "coreference_heads": "Every head as a finder of antecedents",
    "contributions": "What each part of a layer contributes",
    "film": "Every statistic at every checkpoint",
    "film_roles": "Roles at every checkpoint",
    "fronts": "The fronts of all searches",
    "gate_roles": "What the heads do whose gates were learned",
    "gates": "Gates, step by step",
    "mask_runs": "Every run under a mask",
    "pattern_agreement": "Which pattern the rule and the network named",
    "positions": "Learned masks by kinds of positions",
    "probe_weights": "The weight of each head in the parser",
    "ranks": "Ranks of heads by each importance",
    "relation_heads": "Every head for every relation",
    "search": "Every set that was tried",
    "sinks": "Which token is the sink of each head",
    "substitutes": "Each head's fixed pattern in its place",
    "survivors": "What the heads do that are kept",
    "uniform": "What uniform attention would give, by layer",
}


def other_tables(tables: Mapping[str, pd.DataFrame], placed: Collection[str]) -> Iterator[Part]:
    """A part for each table that is not among those placed already."""
    for name, table in tables.items():
        if name in placed or not len(table):
            continue
        columns = tuple(plain(column, 40) for column in table.columns)
        rows = [
            [_cell(value) for value in row]
            for row in table.head(MOST_ROWS).itertuples(index=False, name=None)
        ]
        words = frozenset(
            i for i, column in enumerate(table.columns) if table[column].dtype.kind not in "fiub"
        )
        rest = f", the first {MOST_ROWS} of them here" if len(table) > MOST_ROWS else ""
        note = f"{len(table)} row{'' if len(table) == 1 else 's'}{rest}."
        bare, _, study = name.partition(" (")
        heading = TITLES.get(bare, bare.replace("_", " ")) + (f" ({study}" if study else "")
        yield Part(
            f"table-{slug(name)}",
            plain(heading, 120),
            note,
            columns,
            rows,
            f"{name}.csv",
            (),
            words,
        )


def _cell(value: Any) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", str(value))
    if isinstance(value, int | float) and math.isfinite(value):
        return Cell(f"{value:.4g}".replace("-", "−"), float(value))
    return Cell(plain(value, 60), plain(value, 60))
