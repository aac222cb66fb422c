"""Lines of text files, gzipped or not; every bad line is named by file and line."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from headscope.errors import HeadscopeError

STDIN = "-"


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of a UTF-8 file; a byte order mark at the start is dropped."""
    number = 0
    try:
        with _opened(path) as file:
            for number, raw in enumerate(file, start=1):
                yield number, _decoded(raw, number, path)
    except (OSError, EOFError, zlib.error) as cause:
        reason = getattr(cause, "strerror", None) or str(cause)
        after = f" after line {number}" if number else ""
        raise HeadscopeError(f"cannot be read{after}: {reason}", where=path, expected="a text file, or one in gzip") from cause


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(file, "rb") as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


def _decoded(raw: bytes, number: int, path: str | Path) -> str:
    where = f"{path}:{number}"
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise HeadscopeError("the file is in UTF-16", where=where, expected="UTF-8", mend="Convert it, with iconv say")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\x00" in raw:
        raise HeadscopeError(
            f"a NUL byte at column {raw.index(0) + 1}", where=where, expected="text", mend="This is not a text file"
        )
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as cause:
        raise HeadscopeError(
            f"byte 0x{raw[cause.start]:02x} at column {cause.start + 1} is not UTF-8",
            where=where,
            expected="UTF-8",
            mend="Convert the file, with iconv say",
        ) from cause
