"""Read one file of a study; an error names the file, and the line if the file is text."""

from __future__ import annotations

import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.errors import HeadscopeError, reason

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

CORRECT = "Correct the file, or run the command again"
_FAILURES = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what a reader raises into an error that names the file."""
    try:
        yield
    except FileNotFoundError as cause:
        raise HeadscopeError(
            f"not a study ({reason(cause)})",
            where=path,
            expected="a directory written by headscope analyze, or by another command that makes a study",
        ) from cause
    except _FAILURES as cause:
        what = f"cannot be read ({reason(cause)})"
        raise HeadscopeError(what, where=path, fix=CORRECT) from cause


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; spreadsheets may put a byte order mark at its start."""
    with readable(path):
        data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = data.count(b"\n", 0, cause.start) + 1
        what = f"must be text in UTF-8, got the byte 0x{data[cause.start]:02x}"
        raise HeadscopeError(what, where=f"{path}:{line}", fix=CORRECT) from cause


def read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as cause:
        what = f"column {cause.colno} must continue as JSON ({cause.msg})"
        raise HeadscopeError(what, where=f"{path}:{cause.lineno}", fix=CORRECT) from cause
    except (RecursionError, ValueError) as cause:  # nested too deeply, or a number too long
        what = f"must be JSON that can be read ({reason(cause)})"
        raise HeadscopeError(what, where=path, fix=CORRECT) from cause


def read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    with readable(path):
        return pd.read_parquet(path)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with readable(path):
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("one array, not an archive of arrays")
        with stored:
            return dict(stored)


@contextmanager
def long_csv_fields() -> Iterator[None]:
    """Read fields of any length with the csv module: examples hold whole texts."""
    import csv

    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
