"""Disagreement of lenses with raw attention: the heads that they rank most differently, with examples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.report.head_cards import words_of
from headscope.report.section import Section, needs_table
from headscope.report.table_cells import (
    Cell,
    Columns,
    Part,
    head_column,
    interval_column,
    number_column,
    text_column,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

PEAK = 3  # times an even share of the row: the least that counts as a peak
MARKS = {
    "query token": "query",
    "largest weight": "key",
    "largest through the lens": "through",
}


@needs_table("lens_heads")
def heads_part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "head": head_column(study),
        "statistic": text_column("statistic", 30),
        "lens": text_column("lens", 30),
        "raw": interval_column("raw", "raw_low", "raw_high"),
        "through the lens": interval_column("through", "through_low", "through_high"),
        "rank among heads": lambda row: Cell(
            f"{row['raw_rank']:.0%} → {row['rank']:.0%}", abs(row["apart"])
        ),
    }
    note = (
        "For each lens, the head and statistic whose rank among heads differs most from the rank by raw attention. The "
        "intervals do not overlap. As an extreme, the difference is likely to be smaller on other texts."
    )
    options: dict[str, Any] = {"figures": (), "words": {1, 2}}
    return Part.of("lens-heads", "Where lenses disagree", note, columns, table, **options)


@needs_table("lens_examples")
def examples_part(study: Study, table: pd.DataFrame) -> Part:
    columns: Columns = {
        "head": head_column(study),
        "lens": text_column("lens", 30),
        "text": _text_cell,
        "raw": lambda row: _peak_cell(row, "raw", f"through it {_share(row['raw_key_through'])}"),
        "through the lens": lambda row: _peak_cell(
            row, "lens", f"raw {_share(row['lens_key_raw'])}"
        ),
        "apart": number_column("apart"),
    }
    note = (
        "For the heads above, in three texts: the query for which lens and raw weights differ most, if possible one "
        "whose largest weights are on different tokens. Numbers are shares of a row. “Spread evenly”: no token "
        f"has {PEAK} times an even share. Apart: half the sum of the absolute differences, from 0 to 1. "
        "These are the clearest cases, not typical ones."
    )
    options: dict[str, Any] = {"figures": (), "words": frozenset({1, 2, 3, 4})}
    options["marks"] = tuple(MARKS.items())
    heading = "Where lenses disagree: examples"
    return Part.of("lens-examples", heading, note, columns, table, **options)


def _text_cell(row: dict[Any, Any]) -> Cell:
    """The words, with marks at the query and at the keys with a peak."""
    words = words_of(row["words"])
    positions = {"query": row["query"]}
    for mark, side in (("key", "raw"), ("through", "lens")):
        positions[mark] = row[f"{side}_key"] if _has_peak(row, side) else -1
    marks = [" ".join(m for m, at in positions.items() if at == i) for i in range(len(words))]
    return Cell(" ".join(words), marked=tuple(zip(words, marks, strict=True)))


def _peak_cell(row: dict[Any, Any], side: str, other: str) -> Cell:
    """The token with the largest share on this side (raw or lens), with its share on the other side."""
    weight = row[f"{side}_weight"]
    if not _has_peak(row, side):
        return Cell(f"spread evenly (at most {_share(abs(weight))})")
    return Cell(
        plain(f"{words_of(row['words'])[row[f'{side}_key']]} {_share(weight)}, {other}", 400)
    )


def _has_peak(row: dict[Any, Any], side: str) -> bool:
    """Whether the largest share stands out; assumed if the study does not have the number of keys."""
    keys = row.get("keys", math.nan)
    return bool(math.isnan(keys) or abs(row[f"{side}_weight"]) >= PEAK / keys)


def _share(share: float) -> str:
    return f"{share:.2f}".replace("-", "−")


SECTION = Section(parts={130: heads_part, 140: examples_part})
