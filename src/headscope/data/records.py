"""Rows with named columns from tsv, csv and jsonl files, and the files of a data set: train, dev, test."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from headscope.data import hf_datasets as hub
from headscope.data.text_lines import count_columns, read_lines, suffix_of
from headscope.errors import HeadscopeError, choices, reason

SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
_KINDS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".txt")
JSONL = (".jsonl", ".ndjson", ".json")
ONE_A_LINE = "one JSON object per line"
UNLIST = "If the file holds one list, write one item per line: jq -c '.[]'"


class RenamedColumn(tuple[str, ...]):
    """The name of a column in the data, as stated by the user; `ours` is the task's own name for the column."""

    ours: str

    @classmethod
    def of(cls, name: str, ours: str) -> RenamedColumn:
        column = cls((name,))
        column.ours = ours
        return column


@dataclass(frozen=True)
class Record:
    """One row: its cells by column, and its file and line."""

    cells: dict[str, object]
    where: str

    def text(self, names: Sequence[str]) -> str:
        """The text in the first of these columns that exists; raises an error if the cell is not a text or is blank."""
        value = self.value(names)
        if not isinstance(value, str) or not value.strip():
            problem = "empty" if value is None or value == "" else json.dumps(value)[:40]
            what = f'column "{self.name(names)}" is {problem}'
            raise HeadscopeError(what, where=self.where, expected="a text")
        return value

    def value(self, names: Sequence[str]) -> object:
        return self.cells[self.name(names)]

    def has(self, names: Sequence[str]) -> bool:
        return any(name in self.cells for name in names)

    def name(self, names: Sequence[str]) -> str:
        for name in names:
            if name in self.cells:
                return name
        ours = names.ours if isinstance(names, RenamedColumn) else names[0].replace(" ", "_")
        alternatives = " or ".join(f'"{name}"' for name in names)
        raise HeadscopeError(
            f"no column {alternatives} among {choices(names[0], self.cells)}",
            where=self.where,
            fix=f'Name the column that holds it: `columns={{"{ours}": "NAME"}}`',
        )


def read_records(path: str | Path) -> Iterator[Record]:
    """The rows of a file: tsv and csv have column names in the first line, jsonl has one object per line."""
    kind = suffix_of(path)
    if kind in JSONL:
        yield from _read_jsonl(path)
    elif kind in (".tsv", ".csv", ".txt"):
        yield from _read_table(path, "," if kind == ".csv" else "\t")
    else:
        what = f'"{kind}" is not a format of tables'
        raise HeadscopeError(what, where=path, expected=", ".join(_KINDS[:4]))


def _read_table(path: str | Path, separator: str) -> Iterator[Record]:
    """Cells of a tsv file are read as written; those of a csv file may be quoted and span several lines."""
    names: list[str] | None = None
    for number, cells in _rows(path, separator):
        where = f"{path}:{number}"
        if names is None:
            names = [name.strip() for name in cells]
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise HeadscopeError(f'two columns are called "{min(twice)}"', where=where)
            continue
        if len(cells) != len(names):
            listed = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
            expected = f"{len(names)}, as in line 1 ({listed})"
            raise HeadscopeError(count_columns(cells), where=where, expected=expected)
        yield Record(dict(zip(names, cells, strict=True)), where)


def lone_header(path: str | Path) -> list[str] | None:
    """The names in the first row of a tsv or csv file that has no other row; None for any other file."""
    if suffix_of(path) not in (".tsv", ".csv", ".txt"):
        return None
    first = list(islice(_rows(path, "," if suffix_of(path) == ".csv" else "\t"), 2))
    return first[0][1] if len(first) == 1 else None


def _rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    if separator == "\t":
        for number, line in read_lines(path):
            if line.strip():
                yield number, line.split("\t")
        return
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)
    last = 0  # the line on which the previous row ended; a row may span several lines
    try:
        for cells in reader:
            if cells:
                yield last + 1, cells
            last = reader.line_num
    except csv.Error as cause:
        expected = "quotes that close"
        if "field limit" in str(cause):  # after an unclosed quote, csv reads on until this limit
            expected += f", and at most {csv.field_size_limit()} characters in a field"
        what = f"not a csv line ({reason(cause)})"
        raise HeadscopeError(what, where=f"{path}:{last + 1}", expected=expected) from cause


def _read_jsonl(path: str | Path) -> Iterator[Record]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as cause:
            at = f":{cause.colno}" if isinstance(cause, json.JSONDecodeError) else ""
            what = cause.msg if isinstance(cause, json.JSONDecodeError) else reason(cause)
            raise HeadscopeError(
                f"not JSON: {what}", where=where + at, expected=ONE_A_LINE, fix=UNLIST
            ) from cause
        if not isinstance(cells, dict):
            raise HeadscopeError("not a JSON object", where=where, expected=ONE_A_LINE, fix=UNLIST)
        yield Record(cells, where)


HALVES = ("half-a", "half-b")
FORMER_HALVES = {"even": "half-a", "odd": "half-b"}


def find_split(
    data: str | Path, split: str, *, task: str = "", suffixes: Sequence[str] = _KINDS
) -> Path:
    """The file of a split: `data` itself if it is a file, else the file in the directory that is named after the split.

    In a directory for several tasks (mnli_dev.tsv, rte_dev.tsv) the file name must contain the task, too.
    For the id of a data set (`datasets:OWNER/NAME:CONFIG`) the split is downloaded first.
    """
    split, _, half = split.partition(":")
    if split not in SPLITS:
        halves = [f"dev:{half}" for half in HALVES]
        expected = choices(split, (*SPLITS, *halves), get_close_matches(split, SPLITS))
        raise HeadscopeError(f'"{split}" is not a split', where="`split`", expected=expected)
    if half in FORMER_HALVES:
        new_name = f"{split}:{FORMER_HALVES[half]}"
        raise HeadscopeError(f"{split}:{half} is now called {new_name}", where="`split`")
    if half not in ("", *HALVES):
        expected = f"{split}, {split}:half-a or {split}:half-b"
        raise HeadscopeError(
            f'"{half}" is not a half of {split}', where="`split`", expected=expected
        )
    if hub.is_id(data):
        return hub.fetch_split(str(data), split, SPLITS[split])
    path = Path(data)
    if not path.exists():
        expected = "a file, or a directory with train, dev and test files"
        raise HeadscopeError("no such file or directory", where=data, expected=expected)
    if path.is_file():
        return path
    files = [file for file in sorted(path.iterdir()) if file.is_file()]
    words = {file: _words(file) for file in files if suffix_of(file) in suffixes}
    matches = [file for file in words if words[file] & set(SPLITS[split])]
    of_task = [file for file in words if task in words[file]] if task else []
    if len(matches) > 1 and of_task:
        matches = [file for file in matches if file in of_task]
        if not matches:
            what = f"no file for {split} of {task} here, only {_names(of_task)}"
            raise HeadscopeError(what, where=data, fix="Name a file")
    if not matches:
        what = f"no file for {split} here, only {_names(list(words)[:8]) or 'no table at all'}"
        raise HeadscopeError(what, where=data, expected=f"{SPLITS[split][0]}.tsv, say")
    if len(matches) > 1:
        what = f"several files for {split}: {_names(matches[:8])}"
        raise HeadscopeError(what, where=data, fix="Name one of them")
    return matches[0]


def _words(file: Path) -> set[str]:
    stem = file.name.split(".")[0].lower()
    return set(stem.replace("-", "_").split("_"))


def _names(files: Iterable[Path]) -> str:
    return ", ".join(file.name for file in files)
