"""Where do lenses disagree with raw attention? The heads that they rank most unlike it, with examples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headscope.report.head_cards import words_of
from headscope.report.section import Section
from headscope.report.table_cells import (
    Cell,
    Columns,
    Part,
    head_cell,
    head_column,
    interval_column,
    number_cell,
    optional_head_key,
    rows_of,
)
from headscope.report.text import plain

if TYPE_CHECKING:
    from headscope.study.study import Study

PEAK = 3  # times an even share of the row, below which its largest share is no peak


def heads_part(study: Study) -> Part | None:
    table = study.tables.get("lens_heads")
    if table is None:
        return None
    columns: Columns = {
        "head": head_column(study),
        "statistic": lambda row: Cell(plain(row["statistic"], 30), row["statistic"]),
        "lens": lambda row: Cell(plain(row["lens"], 30), row["lens"]),
        "raw": interval_column("raw", "raw_low", "raw_high"),
        "through the lens": interval_column("through", "through_low", "through_high"),
        "rank among heads": lambda row: Cell(
            f"{row['raw_rank']:.0%} → {row['rank']:.0%}", abs(row["apart"])
        ),
    }
    rows = rows_of(table.to_dict("records"), columns)
    note = (
        "For each lens the head that it ranks most unlike raw attention, beyond what the intervals leave open, of all "
        "heads and statistics: a pick, so expect less of it on other texts. A head's card shows it at work."
    )
    heading = "Where lenses disagree"
    return Part("lens-heads", heading, note, tuple(columns), rows, figures=(), words={1, 2})


def examples_part(study: Study) -> Part | None:
    table = study.tables.get("lens_examples")
    if table is None:
        return None
    rows = []
    for row in table.to_dict("records"):
        words = words_of(row["words"])
        raw_peaks, peaks = (_has_peak(row, weight) for weight in ("raw_weight", "lens_weight"))
        marks = {"query": row["query"], "key": row["raw_key"] if raw_peaks else -1}
        marks |= {"through": row["lens_key"] if peaks else -1}
        marked = tuple(
            (word, " ".join(m for m, at in marks.items() if at == i))
            for i, word in enumerate(words)
        )
        raw = f"{words[row['raw_key']]} {_share(row['raw_weight'])}, through it {_share(row['raw_key_through'])}"
        through = f"{words[row['lens_key']]} {_share(row['lens_weight'])}, raw {_share(row['lens_key_raw'])}"
        told = (
            raw if raw_peaks else _spread(row["raw_weight"]),
            through if peaks else _spread(row["lens_weight"]),
        )
        lens, text = Cell(plain(row["lens"], 30), row["lens"]), Cell(" ".join(words), marked=marked)
        rows.append(
            [
                head_cell(study, optional_head_key(row)),
                lens,
                text,
                *(Cell(plain(one, 400)) for one in told),
                number_cell(row["apart"]),
            ]
        )
    note = (
        "Of the heads above, in three texts the row where lens and weights are furthest apart, if there is one among "
        "those where they point to different tokens. Numbers are shares of a row; it is spread evenly where no token "
        f"has {PEAK} times an even share. Apart: half the sum of the differences, from 0 to 1. "
        "The clearest cases, not usual ones."
    )
    columns = ("head", "lens", "text", "raw", "through the lens", "apart")
    heading = "Where lenses disagree: examples"
    words_in = frozenset({1, 2, 3, 4})
    marks_told = (
        ("the token that looks", "query"),
        ("largest weight", "key"),
        ("largest through the lens", "through"),
    )
    return Part(
        "lens-examples", heading, note, columns, rows, "lens_examples.csv", (), words_in, marks_told
    )


def _has_peak(row: dict[Any, Any], weight: str) -> bool:
    """Whether the row's largest share stands out; it is taken to where the study does not say how many keys it had."""
    keys = row.get("keys", math.nan)
    return bool(math.isnan(keys) or abs(row[weight]) >= PEAK / keys)


def _spread(largest: float) -> str:
    return f"spread evenly (at most {_share(abs(largest))})"


def _share(share: float) -> str:
    return f"{share:.2f}".replace("-", "−")


SECTION = Section(parts={130: heads_part, 140: examples_part})
