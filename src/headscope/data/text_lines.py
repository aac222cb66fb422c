"""Reads the lines of text files, gzipped or not. Errors name file and line."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from headscope.errors import HeadscopeError, reason

STDIN = "-"


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file; a byte order mark at its start is dropped."""
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):
                yield number, _decode(raw, number, path)
    except (OSError, EOFError, zlib.error) as cause:
        after = f" after line {number}" if number else ""
        raise HeadscopeError(
            f"cannot be read{after}: {reason(cause)}",
            where=path,
            expected="a text file, or one in gzip",
            fix="Check the path" if isinstance(cause, FileNotFoundError) else None,
        ) from cause


def can_be_read_again(path: str | Path) -> bool:
    """Whether a file can be read a second time: not stdin, a pipe or `<(command)`."""
    return str(path) != STDIN and (Path(path).is_file() or not Path(path).exists())


def suffix_of(path: str | Path) -> str:
    """The suffix of a file, such as `.csv`, without a final `.gz`."""
    return Path(str(path).removesuffix(".gz")).suffix


def count_columns(cells: Sized) -> str:
    """`1 column`, `3 columns`; for messages about a line of a table."""
    return f"{len(cells)} column{'' if len(cells) == 1 else 's'}"


@contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(file, "rb") as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


def _decode(raw: bytes, number: int, path: str | Path) -> str:
    convert = "Convert the file, for example with iconv"
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise HeadscopeError("the file is in UTF-16", where=path, expected="UTF-8", fix=convert)
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        column = len(raw[: cause.start].decode("utf-8")) + 1
        what = f"byte 0x{raw[cause.start]:02x} is not UTF-8"
        raise HeadscopeError(
            what, where=f"{path}:{number}:{column}", expected="UTF-8", fix=convert
        ) from cause
    if "\x00" in text:
        where = f"{path}:{number}:{text.index(chr(0)) + 1}"
        raise HeadscopeError(
            "a NUL byte; this is not a text file", where=where, expected="text in UTF-8"
        )
    return text.rstrip("\r\n")
