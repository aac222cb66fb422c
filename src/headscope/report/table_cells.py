"""Cells of the page's tables, and parts of the page: a table with a heading, a note and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headscope.report.shared_heads import HeadKey, head_key
from headscope.report.study_access import stacks_of
from headscope.report.text import group_digits, plain
from headscope.tables import STACKS

if TYPE_CHECKING:
    import pandas as pd

    from headscope.study.study import Study

NONE = "–"
DECIMALS = 3
OWN_NAME = ("",)  # the default of `Part.figures`
UNCORRECTED = (
    "Each 95 % interval is for one row alone, without correction for multiple testing. It can exclude 0 although "
    "p (Holm) is large."
)


class Cell(NamedTuple):
    """A cell of a table.

    key     the value by which it is sorted
    head    the head that a click on it opens
    marked  instead of the text: words, each with its mark (`query`, `key`, `through`, or empty)
    """

    text: str
    key: float | str | None = None
    head: str = ""
    marked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Part:
    """A table of the page with its heading, note and figures.

    file     its csv file; by default that of its name
    figures  prefixes of the names of its figures; by default its name
    words    indices of columns of text; the others hold numbers
    marks    the legend of the marks of words in its cells
    lead     the answer, shown before the figures
    """

    name: str
    heading: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    file: str = ""
    figures: tuple[str, ...] = OWN_NAME
    words: Set[int] = frozenset()
    marks: tuple[tuple[str, str], ...] = ()
    lead: str = ""

    def __post_init__(self) -> None:
        if not self.file:
            object.__setattr__(self, "file", f"{self.name.replace('-', '_')}.csv")
        if self.figures is OWN_NAME:
            object.__setattr__(self, "figures", (self.name,))

    @classmethod
    def of(
        cls,
        name: str,
        heading: str,
        note: str,
        columns: Columns,
        table: pd.DataFrame,
        **options: Any,
    ) -> Part:
        """A part with a row for each row of a table. options: as of the class."""
        rows = rows_of(table.to_dict("records"), columns)
        return cls(name, heading, note, tuple(columns), rows, **options)


CellMaker = Callable[[dict[Any, Any]], Cell]  # the cell of a record
Columns = Mapping[str, CellMaker]  # by their headings


def rows_of(records: Iterable[dict[Any, Any]], columns: Columns) -> list[list[Cell]]:
    """A row of cells for each record."""
    return [[cell(record) for cell in columns.values()] for record in records]


def interval_cell(value: Any, low: Any, high: Any, decimals: int = DECIMALS) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    is_open = is_missing(low) or is_missing(high)
    interval = "" if is_open else f" [{low:.{decimals}f}, {high:.{decimals}f}]"
    return Cell(f"{value:.{decimals}f}{interval}".replace("-", "−"), float(value))


def number_cell(
    value: Any, after: str = "", *, sign: bool = False, decimals: int = DECIMALS
) -> Cell:
    if is_missing(value):
        return Cell(NONE)
    text = f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")
    return Cell(text + after, float(value))


def decimals_for(values: Iterable[float]) -> int:
    """The decimals that show two digits of the largest of these: three, or more if all are small."""
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return DECIMALS if most == 0 else min(max(DECIMALS, 2 - math.floor(math.log10(most))), 9)


def p_text(value: float) -> str:
    """A p-value with three decimals, or a power of ten if it would round to 0."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}".replace("-", "−")


def is_missing(value: Any) -> bool:
    """Whether a cell of a table is empty."""
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def optional_head_key(row: dict[Any, Any]) -> HeadKey | None:
    """The head of a row; None if no head was chosen."""
    return None if is_missing(row["layer"]) or is_missing(row["head"]) else head_key(row)


def head_cell(study: Study, key: HeadKey | None) -> Cell:
    if key is None:
        return Cell(NONE)
    stack, layer, head = key
    address = f"{layer}.{head}"
    label = address if len(stacks_of(study)) == 1 else f"{plain(stack)}.{address}"
    return Cell(label, layer + head / 1000, label)


def address_cell(study: Study, address: Any) -> Cell:
    """The head of an address such as `encoder.3.2` or `3.2`."""
    stack, layer, head = ["", *str(address).split(".")][-3:]
    return head_cell(study, (stack or stacks_of(study)[0], int(layer), int(head)))


def p_cell(value: Any) -> Cell:
    return Cell(NONE) if is_missing(value) else Cell(p_text(value), float(value))


def count_cell(value: Any) -> Cell:
    return Cell(NONE) if is_missing(value) else Cell(group_digits(int(value)), float(value))


def text_cell(value: Any, limit: int) -> Cell:
    text = plain(value, limit)
    return Cell(text, text)


def integer_cell(value: Any) -> Cell:
    return Cell(str(int(value)), int(value))


def layer_cell(study: Study, stack: str, layer: int) -> Cell:
    number = str(layer).replace("-", "−")  # relevance begins before the first layer
    text = number if len(stacks_of(study)) == 1 else f"{plain(stack, 20)} {number}"
    return Cell(text, float(STACKS.index(stack) * 1000 + layer))


def interval_column(
    value: str, low: str = "low", high: str = "high", decimals: int = DECIMALS
) -> CellMaker:
    """Cells of these columns of a record: value [low, high]."""
    return lambda record: interval_cell(record[value], record[low], record[high], decimals)


def text_column(column: str, limit: int) -> CellMaker:
    """The text in this column of a record."""
    return lambda record: text_cell(record[column], limit)


def number_column(column: str, *, sign: bool = False, decimals: int = DECIMALS) -> CellMaker:
    """The number in this column of a record, if it has one."""
    return lambda record: number_cell(record.get(column), sign=sign, decimals=decimals)


def head_column(study: Study) -> CellMaker:
    """The head of a record."""
    return lambda record: head_cell(study, optional_head_key(record))


def rows_by_layer(
    study: Study, table: pd.DataFrame, column: str, names: Sequence[Any]
) -> list[list[Cell]]:
    """A row for each stack and layer, a cell for each of these values of `column`: value [low, high]."""
    by_layer: dict[tuple[str, int], dict[Any, Any]] = {}
    for row in table.to_dict("records"):
        by_layer.setdefault((row["stack"], row["layer"]), {})[row[column]] = row
    return [
        [layer_cell(study, *layer), *(estimate_cell(of_layer.get(name)) for name in names)]
        for layer, of_layer in by_layer.items()
    ]


def estimate_cell(row: dict[Any, Any] | None) -> Cell:
    """value [low, high] of a row, if there is one."""
    return Cell(NONE) if row is None else interval_cell(row["value"], row["low"], row["high"])
