"""What the tables of the page are made of: cells that can be sorted, and parts with a heading, a note and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NONE = "–"
DECIMALS = 3


class Cell(NamedTuple):
    """What stands in a table.

    key     what it is sorted by
    head    the head that it opens
    marked  instead of the text: words, each with how it is marked (`query`, `key`, `through`; empty: it is not)
    """

    text: str
    key: float | str | None = None
    head: str = ""
    marked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Part:
    """A section of the page: its figures are those whose name begins with one of `figures`."""

    name: str
    heading: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    file: str
    figures: tuple[str, ...] = ()
    words: frozenset[int] = field(
        default_factory=frozenset
    )  # columns of text; the others hold numbers
    marks: tuple[
        tuple[str, str], ...
    ] = ()  # how words are marked in its cells: words, each marked so
    lead: str = ""  # the section's answer, before its figures


def measured(value: Any, low: Any, high: Any, decimals: int = DECIMALS) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    interval = (
        "" if is_missing(low) or is_missing(high) else f" [{low:.{decimals}f}, {high:.{decimals}f}]"
    )
    return Cell(f"{value:.{decimals}f}{interval}".replace("-", "−"), float(value))


def number(value: Any, after: str = "", *, sign: bool = False, decimals: int = DECIMALS) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    return Cell(
        f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−") + after, float(value)
    )


def decimals_for(values: Iterable[float]) -> int:
    """How many decimals show two digits of the largest of these: three, more where all are small."""
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return DECIMALS if most == 0 else min(max(DECIMALS, 2 - math.floor(math.log10(most))), 9)


def p_text(value: float) -> str:
    """A p-value with three decimals, or a power of ten where that would be 0."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}".replace("-", "−")


def is_missing(value: Any) -> bool:
    """Whether a cell of a table is empty."""
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
