"""Declared tables: columns with dtypes, how a file is read and checked, and how rows become a DataFrame.

Dtypes are the same for a table made in memory and for one read from a file:

    text          str; an empty cell is ""
    whole number  int64, or Int64 where cells may be empty
    number        float64; an empty cell is NaN
    flag          bool, or object with True, False and None where cells are empty
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headscope.errors import HeadscopeError
from headscope.study.schema.read_file import CORRECT, long_csv_fields, read_text, readable

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["text", "whole number", "number", "flag"]
KINDS: dict[str, Kind] = {  # by the word in declarations
    "text": "text",
    "whole": "whole number",
    "number": "number",
    "flag": "flag",
}
FLAGS = {"True": True, "False": False, "": None}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    may_be_empty  whether a whole number may be missing; text, numbers and flags always may
    is_optional   whether tables without this column are valid
    """

    kind: Kind
    may_be_empty: bool = False
    is_optional: bool = False

    def convert(self, values: pd.Series[Any]) -> pd.Series[Any]:
        """The values with the declared dtype; ValueError or TypeError if one of them does not fit."""
        if self.kind == "text":
            return values.astype(object).where(values.notna(), "").astype(str)
        if self.kind == "number":
            return values.astype("float64")
        if self.kind == "whole number":
            numbers = values.astype("Int64")  # unlike int64 it refuses to round
            return numbers if self.may_be_empty else numbers.astype("int64")
        return values if values.dtype == bool else _flags(values)

    def accepts(self, cell: str) -> bool:
        """Whether a cell of a file is valid."""
        if self.kind == "text":
            return True
        if self.kind == "flag":
            return cell in FLAGS
        if cell in ("", "nan"):
            return self.kind == "number" or self.may_be_empty
        try:
            number = float(cell)
        except ValueError:
            return False
        return self.kind == "number" or (math.isfinite(number) and number == int(number))

    @property
    def expected(self) -> str:
        """What a cell must hold, for messages."""
        words = "True, False or nothing" if self.kind == "flag" else f"a {self.kind}"
        return f"{words} or nothing" if self.may_be_empty or self.kind == "number" else words


Columns = dict[str, Column]


def _flags(values: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    cells = values.astype(object).where(values.notna(), "").astype(str).tolist()
    if unknown := set(cells) - set(FLAGS):
        raise ValueError(f"not flags: {unknown}")
    flags = [FLAGS[cell] for cell in cells]
    return pd.Series(flags, index=values.index, dtype=object if None in flags else bool)


@dataclass(frozen=True)
class Table:
    """A table that a study can hold, stored as NAME.csv."""

    name: str
    title: str
    sentence: str
    columns: Columns

    @property
    def names(self) -> list[str]:
        """The names of the columns that every such table has."""
        return [name for name, column in self.columns.items() if not column.is_optional]

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """Rows as a DataFrame with the declared dtypes; without rows it has all required columns."""
        import pandas as pd

        listed = list(rows)
        return self.convert(pd.DataFrame(listed, columns=None if listed else self.names))

    def convert(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with the declared dtypes; columns that are not declared stay as they are."""
        declared = ((name, column) for name, column in self.columns.items() if name in frame)
        return frame.assign(**{name: column.convert(frame[name]) for name, column in declared})

    def validate(self, frame: pd.DataFrame, where: str | Path) -> None:
        """Raise an error if a column is missing or has another dtype than the declared one."""
        self._check_names(list(map(str, frame.columns)), where)
        for name, column in self.columns.items():
            if name not in frame:
                continue
            try:
                is_same = column.convert(frame[name]).dtype == frame[name].dtype
            except (ValueError, TypeError):
                is_same = False
            if not is_same:
                what = f'column "{name}" must hold {column.expected} in each cell'
                raise HeadscopeError(f"{what}, got {frame[name].dtype}", where=where, fix=CORRECT)

    def read(self, path: Path) -> pd.DataFrame:
        """The table from its file, with the declared dtypes."""
        import pandas as pd

        # What pandas takes for a missing value ("NA", "null") can be a token or a word.
        words = [name for name, column in self.columns.items() if column.kind in ("text", "flag")]
        text = read_text(path)
        header = _check_cells(text, path)
        self._check_names(header, path)
        empty = {name: ["", "nan"] for name in header if name not in words}
        dtypes = {name: str for name in words if name in header}
        with readable(path):
            frame = pd.read_csv(
                io.StringIO(text), dtype=dtypes, keep_default_na=False, na_values=empty
            )
        try:
            return self.convert(frame)
        except (ValueError, TypeError) as cause:
            raise self._wrong_cell(path) or cause from cause

    def _check_names(self, names: list[str], where: str | Path) -> None:
        for name in self.names:
            if name not in names:
                others = [other for other in names if other not in self.columns]
                near = get_close_matches(name, others, n=1)
                fix = f'Did you mean "{name}" by "{near[0]}"?' if near else CORRECT
                listed = ", ".join(names) or "nothing"
                what, expected = f'column "{name}" is missing, got {listed}', ", ".join(self.names)
                raise HeadscopeError(what, where=where, expected=expected, fix=fix)

    def _wrong_cell(self, path: Path) -> HeadscopeError | None:
        """The error for the first cell that is not valid."""
        for line, row in rows_by_line(path):
            for name, cell in row.items():
                column = self.columns.get(name)
                if column is not None and not column.accepts(cell):
                    what = f'column "{name}" must hold {column.expected}, got "{cell}"'
                    return HeadscopeError(what, where=f"{path}:{line}", fix=CORRECT)
        return None


def rows_by_line(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of each row of a file; line is the number of the row's last line."""
    with io.StringIO(read_text(path), newline="") as file, long_csv_fields():
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, {name: cell or "" for name, cell in row.items() if name}


def _check_cells(text: str, path: Path) -> list[str]:
    """The header of a file whose rows must all have as many cells."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    start = 1  # line of the row that is read next
    header: list[str] = []
    with long_csv_fields():
        try:
            for row in reader:
                header = header or row
                if row and len(row) != len(header):
                    what = f"each row must have {len(header)} cells as the header, got {len(row)}"
                    raise HeadscopeError(what, where=f"{path}:{reader.line_num}", fix=CORRECT)
                start = reader.line_num + 1
        except csv.Error as cause:
            what = f"quotes must be closed and stand around whole cells ({cause})"
            raise HeadscopeError(what, where=f"{path}:{start}", fix=CORRECT) from cause
    if twice := [name for name in header if header.count(name) > 1]:
        what = f'each column must have its own name, got "{twice[0]}" twice'
        raise HeadscopeError(what, where=f"{path}:1", fix=CORRECT)
    return header


def parse_columns(declaration: str, groups: Mapping[str, Columns]) -> Columns:
    """Columns from a declaration such as `HEAD, role: text, layer head: whole?, aim: text optional`.

    A name in capitals stands for the columns of that group. A question mark means that cells may be empty, `optional`
    that tables without the column are valid.
    """
    columns: Columns = {}
    for item in declaration.split(","):
        names, _, kind = item.strip().partition(": ")
        if not kind:
            columns |= groups[names]
            continue
        kind, *optional = kind.split()
        column = Column(KINDS[kind.rstrip("?")], kind.endswith("?"), bool(optional))
        columns |= dict.fromkeys(names.split(), column)
    return columns


def parse_groups(declarations: str) -> dict[str, Columns]:
    """Groups of columns by name, from lines `NAME = columns`; longer ones continue on indented lines."""
    groups: dict[str, Columns] = {}
    for declaration in declarations.replace("\n    ", " ").strip().splitlines():
        name, _, columns = declaration.partition(" = ")
        groups[name] = parse_columns(columns, groups)
    return groups


def parse_tables(declarations: str, groups: Mapping[str, Columns]) -> dict[str, Table]:
    """Tables by name, from paragraphs: `name: title`, then indented a line with the sentence, then the columns."""
    tables = {}
    for declaration in declarations.strip().split("\n\n"):
        heading, sentence, *columns = declaration.splitlines()
        name, _, title = heading.partition(": ")
        parsed = parse_columns(" ".join(columns), groups)
        tables[name] = Table(name, title, sentence.strip(), parsed)
    return tables
