"""Texts and pairs of texts from files: plain text, tab-separated pairs, jsonl with named fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.data.bundled import BUNDLED, named
from headscope.data.lines import read_lines
from headscope.errors import HeadscopeError, choices, reason

ONE_A_LINE = "one JSON object a line"
UNLIST = "If the file holds one list, write its items a line each: jq -c '.[]'"


Text = str | tuple[str, ...]  # as written, or already split into words


@dataclass(frozen=True)
class Example:
    """A text, or a pair of texts; `where` is its file and line. A text may be given as its words."""

    first: Text
    second: Text | None = None
    where: str = ""


def examples_of(texts: Iterable[str | tuple[str, str]]) -> list[Example]:
    """Examples from texts given directly: all single, or all pairs."""
    if isinstance(texts, str):
        raise HeadscopeError("one text where several were expected", where="texts", mend="Put it in a list")
    given = list(texts)
    sizes = {1 if isinstance(text, str) else len(text) for text in given}
    if sizes - {1, 2} or len(sizes) > 1:
        raise HeadscopeError("the texts are of different kinds", where="texts", expected="all texts, or all pairs")
    return [Example(text) if isinstance(text, str) else Example(text[0], text[1]) for text in given]


def read_examples(
    paths: Iterable[str | Path], *, pairs: bool = False, fields: tuple[str, ...] | None = None
) -> Iterator[Example]:
    """The examples of all files in order. `fields` names the fields of jsonl (text; a and b for pairs).

    Blank lines, and lines that are a comment (`# …`), are left out.
    """
    if fields is not None and len(fields) != (2 if pairs else 1):
        raise HeadscopeError(
            f"{len(fields)} fields given: {', '.join(fields)}",
            where="--fields",
            expected="two for --pairs, as in a,b" if pairs else "one; or add --pairs",
        )
    files = [named(path) for path in paths]
    if fields is not None and not any(map(_is_jsonl, files)):
        raise HeadscopeError(
            f"no file of the corpus has fields: {', '.join(map(str, files))}",
            where="--fields",
            expected="a .jsonl file",
        )
    for path in files:
        if path in BUNDLED.values() and not pairs and fields is None:
            raise HeadscopeError("this corpus holds pairs of texts", where=Path(path).stem, mend="Add --pairs")
        if _is_jsonl(path):
            yield from _read_jsonl(path, fields or (("a", "b") if pairs else ("text",)))
        else:
            yield from _read_pairs(path) if pairs else _read_text(path)


def _is_jsonl(path: str | Path) -> bool:
    return str(path).removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))


def _read_text(path: str | Path) -> Iterator[Example]:
    for number, line in _content_lines(path):
        yield Example(line, where=f"{path}:{number}")


def _read_pairs(path: str | Path) -> Iterator[Example]:
    for number, line in _content_lines(path):
        where = f"{path}:{number}"
        cells = line.split("\t")
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise HeadscopeError(
                columns if len(cells) != 2 else f"column {1 if not cells[0].strip() else 2} is empty",
                where=where,
                expected="two texts with one tab between them (--pairs)",
                mend="Mend the line, or leave --pairs out if each line is one text" if len(cells) == 1 else None,
            )
        yield Example(cells[0], cells[1], where)


def _content_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    for number, line in read_lines(path):
        if line.strip() and line != "#" and not line.startswith("# "):
            yield number, line


def _read_jsonl(path: str | Path, fields: tuple[str, ...]) -> Iterator[Example]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as cause:
            at = f":{cause.colno}" if isinstance(cause, json.JSONDecodeError) else ""
            what = cause.msg if isinstance(cause, json.JSONDecodeError) else reason(cause)
            raise HeadscopeError(f"not JSON: {what}", where=where + at, expected=ONE_A_LINE, mend=UNLIST) from cause
        if not isinstance(record, dict):
            raise HeadscopeError("not a JSON object", where=where, expected=ONE_A_LINE, mend=UNLIST)
        texts = [_text(record, field, where) for field in fields]
        blank = [field for field, text in zip(fields, texts, strict=True) if not text.strip()]
        if not blank:
            yield Example(texts[0], texts[1] if len(texts) > 1 else None, where)
        elif len(blank) < len(fields):
            raise HeadscopeError(f'field "{blank[0]}" is empty', where=where, expected="two texts (--pairs)")


def _text(record: dict[str, object], field: str, where: str) -> str:
    if field not in record:
        raise HeadscopeError(
            f'no field "{field}" among {choices(field, record)}' if record else f'no field "{field}", nor any other',
            where=where,
            mend="Name what to read with --fields, as in --fields premise,hypothesis with --pairs",
        )
    value = record[field]
    if not isinstance(value, str):
        raise HeadscopeError(
            f'field "{field}" is {json.dumps(value)[:40]}',
            where=where,
            expected="a text in quotes",
            mend="Mend the line, or name another field with --fields",
        )
    return value
