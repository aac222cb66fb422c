"""A journal of finished units, from which work that was killed is resumed to the same bytes.

Each unit is a line of JSON with a checksum; an incomplete last line is dropped. The first line is the header of the
run: the journal of another run is refused, and the error names what differs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "journal.jsonl"


class Journal:
    """Units of one run in a file. header: everything that the numbers of the run depend on, by name."""

    def __init__(self, folder: Path, header: Mapping[str, object], *, resume: bool) -> None:
        self.path = folder / NAME
        self.units: list[dict[str, Any]] = []
        self._header = json.loads(json.dumps(header))
        if resume and self.path.exists():
            self._read()
        else:
            self.path.write_bytes(b"")
            self._write(self._header)

    def add(self, unit: Mapping[str, object]) -> None:
        """Write a finished unit and flush it to the disk."""
        self._write(unit)
        self.units.append(json.loads(json.dumps(unit)))

    def _write(self, content: Mapping[str, object]) -> None:
        text = json.dumps(content, sort_keys=True)
        line = json.dumps({"sum": _sum(text), "unit": content}, sort_keys=True) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        whole = list(_whole_lines(self.path.read_bytes()))
        if whole:
            check_same_run(whole[0][1], self._header, f"{self.path}:1")
            self.units = [unit for _, unit in whole[1:]]
        end = whole[-1][0] if whole else 0
        with self.path.open("rb+") as file:  # drop an incomplete last line
            file.truncate(end)
        if not whole:
            self._write(self._header)


def check_or_write_header(path: Path, header: Mapping[str, object]) -> None:
    """Write the header of a run, or raise an error if the file holds that of another run."""
    now = json.loads(json.dumps(header))
    if path.exists():
        check_same_run(json.loads(path.read_text("utf-8")), now, path)
    path.write_text(json.dumps(now), "utf-8")


def check_same_run(
    then: Mapping[str, object], now: Mapping[str, object], where: str | Path
) -> None:
    """Raise an error that names what differs between the headers of two runs; they may be nested."""
    for name in sorted(set(then) | set(now)):
        before, after = then.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            check_same_run(before, after, where)
        elif before != after:
            raise HeadscopeError(
                f"`{name}` must be as in the run to resume ({_short(before)}), got {_short(after)}",
                where=where,
                fix="Give the same options again, or `overwrite=True` instead of `resume=True` to begin anew",
            )


def _whole_lines(raw: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """(end of the line in bytes, its unit) up to the first line that is incomplete."""
    end = 0
    for line in raw.splitlines(keepends=True):
        try:
            content = json.loads(line)
            unit = content["unit"]
        except (ValueError, KeyError, TypeError):
            return
        if not line.endswith(b"\n") or content["sum"] != _sum(json.dumps(unit, sort_keys=True)):
            return
        end += len(line)
        yield end, unit


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{text[:36]}…" if len(text) > 40 else text


class EncodedArray(TypedDict):
    """An array in JSON; the data are its bytes in base64."""

    shape: list[int]
    dtype: str
    data: str


def encode_array(array: NDArray[Any]) -> EncodedArray:
    """An array as JSON, to the last bit."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }


def decode_array(content: EncodedArray) -> NDArray[Any]:
    raw = base64.b64decode(content["data"])
    flat: NDArray[Any] = np.frombuffer(raw, dtype=np.dtype(content["dtype"]))
    return flat.reshape(content["shape"])
