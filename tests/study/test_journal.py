"""The journal: what was written is there, what was not written wholly is not, and another run's is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import HeadscopeError
from headscope.study.journal import NAME, Journal, decode_array, encode_array

HEADER = {
    "model": "ab" * 32,
    "code": "cd" * 32,
    "data": [{"path": "a", "sha256": "1"}],
    "options": {"seed": 0},
}
UNITS = [
    {"block": i, "group": f"encoder.{i}", "losses": encode_array(np.array([i / 3]))}
    for i in range(4)
]


def written(folder: Path) -> Path:
    journal = Journal(folder, HEADER, resume=False)
    for unit in UNITS:
        journal.add(unit)
    return folder / NAME


def test_units_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path)
    assert Journal(tmp_path, HEADER, resume=True).units == UNITS


def test_without_resume_a_journal_begins_anew(tmp_path: Path) -> None:
    written(tmp_path)
    assert Journal(tmp_path, HEADER, resume=False).units == []
    assert Journal(tmp_path, HEADER, resume=True).units == []


def test_a_file_cut_anywhere_keeps_its_whole_lines_and_can_be_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kill -9 leaves: cut at every single byte."""
    monkeypatch.setattr(os, "fsync", lambda number: None)  # thousands of them
    path = written(tmp_path)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        journal = Journal(tmp_path, HEADER, resume=True)
        count = max(0, sum(end <= size for end in ends) - 1)
        assert journal.units == UNITS[:count], size
        for unit in UNITS[count:]:
            journal.add(unit)
        assert path.read_bytes() == whole, size


def test_a_line_that_was_altered_and_all_after_it_are_dropped(tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"encoder.1", b"encoder.7")
    path.write_bytes(b"".join(lines))
    assert Journal(tmp_path, HEADER, resume=True).units == UNITS[:1]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"model": "ef" * 32},
            f"`model` must be as in the run to resume ({('ab' * 32)[:36]}…), got {('ef' * 32)[:36]}…",
        ),
        ({"code": "x"}, f"`code` must be as in the run to resume ({('cd' * 32)[:36]}…), got x"),
        (
            {"data": []},
            '`data` must be as in the run to resume ([{"path": "a", "sha256": "1"}]), got []',
        ),
        ({"options": {"seed": 1}}, "`seed` must be as in the run to resume (0), got 1"),
        (
            {"options": {"seed": 0, "limit": 9}},
            "`limit` must be as in the run to resume (null), got 9",
        ),
        ({"options": {}}, "`seed` must be as in the run to resume (0), got null"),
    ],
)
def test_the_journal_of_another_run_is_refused_by_what_differs(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    with pytest.raises(HeadscopeError) as error:
        Journal(tmp_path, HEADER | changes, resume=True)
    assert str(error.value) == (
        f"{path}:1: {named}. "
        "Give the same options again, or `overwrite=True` instead of `resume=True` to begin anew."
    )
    assert path.read_bytes() == before


@given(st.lists(st.floats(allow_nan=True, width=64), min_size=1, max_size=12))
@settings(deadline=None, derandomize=True, database=None)
def test_arrays_are_packed_to_the_last_bit(numbers: list[float]) -> None:
    array = np.array(numbers).reshape(1, -1, 1)
    back = decode_array(encode_array(array))
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
