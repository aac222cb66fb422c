"""Texts and pairs of texts from files: plain text, tab-separated pairs, FASTA, columns of csv, tsv and jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from headscope.data.bundled import BUNDLED, corpus_path
from headscope.data.fasta import is_fasta, read_fasta
from headscope.data.records import JSONL, Record, read_records
from headscope.data.text_lines import count_columns, read_lines, suffix_of
from headscope.errors import HeadscopeError, choices

TABLES = (".csv", ".tsv", *JSONL)

Column = str | Iterable[str] | None  # the name of a column, or two names for pairs
Text = str | tuple[str, ...]  # as written, or already split into words


@dataclass(frozen=True)
class Example:
    """A text or a pair of texts; a text is a string or a tuple of words. `where` is its file and line."""

    first: Text
    second: Text | None = None
    where: str = ""


def examples_of(texts: Iterable[str | tuple[str, str]]) -> list[Example]:
    """Examples from texts in memory: all single texts, or all pairs."""
    if isinstance(texts, str):
        fix = "Put it in a list; a file of texts is corpus=FILE"
        raise HeadscopeError("one text where several were expected", where="texts", fix=fix)
    inputs = list(texts) if isinstance(texts, Iterable) else [texts]
    wrong = [text for text in inputs if not isinstance(text, str) and not _is_pair(text)]
    if wrong:
        raise HeadscopeError(
            f"{wrong[0]!r} is not a text", where="texts", expected="texts, or pairs of texts"
        )
    if len({isinstance(text, str) for text in inputs}) > 1:
        raise HeadscopeError(
            "the texts are of different kinds", where="texts", expected="all texts, or all pairs"
        )
    return [
        Example(text) if isinstance(text, str) else Example(text[0], text[1]) for text in inputs
    ]


def _is_pair(text: object) -> bool:
    if not isinstance(text, tuple | list) or len(text) != 2:
        return False
    return all(isinstance(part, str) for part in text)


def columns_of(column: Column) -> tuple[str, ...] | None:
    """Column names as a tuple: "a,b" and ("a", "b") both mean two columns."""
    if isinstance(column, str):
        return tuple(name.strip() for name in column.split(","))
    return None if column is None else tuple(column)


def read_examples(
    paths: Iterable[str | Path],
    *,
    pairs: bool = False,
    column: Column = None,
    option: str = "`column`",
) -> Iterator[Example]:
    """The examples of all files in order.

    From tables (csv, tsv, jsonl) the column `text` is read, or `a` and `b` for pairs, unless `column` names others.
    From FASTA files each record is a text. In other files each line is a text, or two texts separated by a tab for
    pairs; blank lines and comments (`# …`) are left out. A tsv file of pairs has no header unless `column` is given.

    option  name of the option for columns, for messages
    """
    columns = columns_of(column)
    if columns is not None and len(columns) != (2 if pairs else 1):
        raise HeadscopeError(
            f"{count_columns(columns)} given: {', '.join(columns)}",
            where=option,
            expected="two for `pairs=True`, as in a,b" if pairs else "one; or add `pairs=True`",
        )
    files = [corpus_path(path) for path in paths]
    if columns is not None and not any(suffix_of(file) in TABLES for file in files):
        raise HeadscopeError(
            f"no file of the corpus has columns: {', '.join(map(str, files))}",
            where=option,
            expected="a .csv, .tsv or .jsonl file",
        )
    for path in files:
        if path in BUNDLED.values() and not pairs and columns is None:
            raise HeadscopeError(
                "this corpus holds pairs of texts", where=Path(path).stem, fix="Add `pairs=True`"
            )
        has_header = not (suffix_of(path) == ".tsv" and pairs and columns is None)
        if suffix_of(path) in TABLES and has_header:
            yield from _read_table(path, columns or (("a", "b") if pairs else ("text",)), option)
        else:
            yield from _read_pairs(path) if pairs else _read_text(path)


def _read_text(path: str | Path) -> Iterator[Example]:
    """One text per line or, in a FASTA file, per record."""
    filled = ((number, line) for number, line in read_lines(path) if line.strip())
    start: list[tuple[int, str]] = []
    first_lines: list[str] = []
    while len(first_lines) < 2 and (line := next(filled, None)) is not None:
        start.append(line)
        first_lines += [] if line[1].startswith(";") else [line[1]]
    lines = chain(start, filled)
    read = read_fasta(path, lines) if is_fasta(path, first_lines) else _content_lines(lines)
    for number, text in read:
        yield Example(text, where=f"{path}:{number}")


def _read_pairs(path: str | Path) -> Iterator[Example]:
    if is_fasta(path):
        raise HeadscopeError("FASTA holds single sequences", where=path, fix="Leave `pairs` out")
    for number, line in _content_lines(read_lines(path)):
        where = f"{path}:{number}"
        cells = line.split("\t")
        empty = [f"column {i} is empty" for i, cell in enumerate(cells, 1) if not cell.strip()]
        if len(cells) != 2 or empty:
            fix = "Fix the line, or leave `pairs` out if each line is one text"
            raise HeadscopeError(
                count_columns(cells) if len(cells) != 2 else empty[0],
                where=where,
                expected="two texts with one tab between them (`pairs=True`)",
                fix=fix if len(cells) == 1 else None,
            )
        yield Example(cells[0], cells[1], where)


def _content_lines(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.strip() and line != "#" and not line.startswith("# "):
            yield number, line


def _read_table(path: str | Path, columns: tuple[str, ...], option: str) -> Iterator[Example]:
    for record in read_records(path):
        texts = [_text(record, column, option) for column in columns]
        blank = [column for column, text in zip(columns, texts, strict=True) if not text.strip()]
        if not blank:
            yield Example(texts[0], texts[1] if len(texts) > 1 else None, record.where)
        elif len(blank) < len(columns):
            raise HeadscopeError(
                f'column "{blank[0]}" is empty',
                where=record.where,
                expected="two texts (`pairs=True`)",
            )


def _text(record: Record, column: str, option: str) -> str:
    if column not in record.cells:
        others = f" among {choices(column, record.cells)}" if record.cells else ", nor any other"
        raise HeadscopeError(
            f'no column "{column}"{others}',
            where=record.where,
            fix=f"Name the column to read with {option}",
        )
    value = record.cells[column]
    if not isinstance(value, str):
        raise HeadscopeError(
            f'column "{column}" is {json.dumps(value)[:40]}',
            where=record.where,
            expected="a text in quotes",
            fix=f"Correct the line, or name another column with {option}",
        )
    return value
