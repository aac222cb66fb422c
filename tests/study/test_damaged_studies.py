"""A study that was damaged or edited by hand gives one line with the file, the place and what must hold."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headscope.analysis.read_study import read_study_or_comparison
from headscope.errors import HeadscopeError
from headscope.study.study import Study

OLD = Path(__file__).parent / "data" / "study-0.1"
Damage = Callable[[Path], Any]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A copy of the stored study, to be damaged."""
    return Path(shutil.copytree(OLD, tmp_path / "study"))


def refusal(folder: Path) -> str:
    with pytest.raises(HeadscopeError) as caught:
        read_study_or_comparison(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(content: str | bytes, file: str) -> Damage:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / file).write_bytes(data)


def edit(file: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


def replace(file: str, old: bytes, new: bytes) -> Damage:
    return edit(file, lambda data: data.replace(old, new, 1))


def set_cell(file: str, column: str, cell: str) -> Damage:
    """Replace a cell of the first row."""

    def damage(folder: Path) -> None:
        with (folder / file).open(encoding="utf-8", newline="") as stored:
            header, first, *rows = csv.reader(stored)
        first[header.index(column)] = cell
        with (folder / file).open("w", encoding="utf-8", newline="") as stored:
            csv.writer(stored).writerows([header, first, *rows])

    return damage


def set_key(address: str, value: object) -> Damage:
    """Set a key of run.json, or delete it if the value is `...`."""

    def damage(folder: Path) -> None:
        record = json.loads((folder / "run.json").read_text("utf-8"))
        *parents, last = address.split(".")
        section = record
        for name in parents:
            section = section.setdefault(name, {})
        if value is ...:
            del section[last]
        else:
            section[last] = value
        (folder / "run.json").write_text(json.dumps(record), "utf-8")

    return damage


def heads(change: Callable[[pd.DataFrame], pd.DataFrame], folder: Path) -> None:
    path = folder / "heads.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILES: list[tuple[Damage, str]] = [
    # heads.csv is an export of heads.parquet
    (set_cell("heads.csv", "value", "abc"), 'heads.csv:2: column "value" must hold a number'),
    (set_cell("heads.csv", "value", "99"), 'heads.csv:2: column "value" must be as in heads.parquet ('),
    (set_cell("heads.csv", "statistic", "x"), 'heads.csv:2: column "statistic" must be as in heads.'),
    (write("", "heads.csv"), 'heads.csv: column "stack" is missing, got nothing.'),
    (partial(heads, lambda frame: frame.iloc[1:]), "rows of heads.parquet, got"),
    (partial(heads, lambda frame: frame.iloc[:0]), "heads.csv: must have the 0 rows of heads.parquet"),
    (partial(heads, lambda frame: frame.assign(low=9.0)), 'column "low" must be as in heads.parquet'),
    # every file is named
    (write("", "heads.parquet"), "heads.parquet: cannot be read ("),
    (write("zzz", "maps.npz"), "maps.npz: cannot be read ("),
    (write("", "maps.npz"), "maps.npz: cannot be read ("),
    (lambda folder: (folder / "maps.npz").unlink(), "maps.npz: not a study (No such file"),
    (edit("run.json", lambda data: data[:-20]), ": column "),
    (write("[" * 100_000, "run.json"), "run.json: must be JSON that can be read ("),
    (write(b'{\n"\xff\xfe"}', "run.json"), "run.json:2: must be text in UTF-8, got the byte 0xff."),
    (write("NaN", "run.json"), "run.json: the study has schema None."),
    # rows and cells
    (edit("roles.csv", lambda data: data + b"1,2,3\n"), ": each row must have 12 cells as the header, got 3."),
    (edit("roles.csv", lambda data: data[:-1] + b",1\n"), ": each row must have 12 cells as the header, got 13."),
    (replace("roles.csv", b"encoder", b"enc\xe9der"), "roles.csv:2: must be text in UTF-8, got the byte 0xe9."),
    (replace("roles.csv", b"encoder", b'"encoder'), "roles.csv:2: quotes must be closed"),
    (replace("roles.csv", b"rule,", b"role,"), "roles.csv:1: each column must have its own name"),
    (write("", "roles.csv"), 'roles.csv: column "stack" is missing, got nothing.'),
    (lambda folder: make_directory(folder / "sinks.csv"), "sinks.csv: cannot be read (Is a directory)"),
]  # fmt: skip

KEYS: list[tuple[str, object, str]] = [
    ("model", ..., 'key "model" is missing.'),
    ("model", [], 'key "model" must hold an object {…}, got [].'),
    ("model", None, 'key "model" must hold an object {…}, got null.'),
    ("model.name", 5, 'key "model.name" must hold text, got 5.'),
    ("model.name", ..., 'key "model.name" is missing.'),
    ("model.layers", ..., 'key "model.layers" is missing.'),
    ("model.layers", [], 'key "model.layers" must hold an object'),
    ("model.layers", {"encoder": "two"}, 'key "model.layers.encoder" must hold a whole number, got "two".'),
    ("model.layers", {"encoder": True}, 'key "model.layers.encoder" must hold a whole number, got true.'),
    ("model.heads", ..., 'key "model.heads" is missing.'),
    ("model.family", None, 'key "model.family" must hold text, got null.'),
    ("model.class", 1, 'key "model.class" must hold text'),
    ("model.sha256", 3, 'key "model.sha256" must hold text'),
    ("model.reading", 7, 'key "model.reading" must hold an object'),
    ("model.notes", 5, 'key "model.notes" must hold a list'),
    ("model.notes", [5], 'key "model.notes.0" must hold text'),
    ("model.edits", "Ablate", 'key "model.edits" must hold a list, got "Ablate".'),
    ("model.edits", [5], 'key "model.edits.0" must hold an edit {"kind": NAME, …}, got 5.'),
    ("model.edits", [{}], 'key "model.edits.0" must hold an edit'),
    ("schema", 2, "the study has schema 2."),
    ("schema", "1", "the study has schema '1'."),
    ("kind", "banana", "key \"kind\" must hold 'comparison'"),
    ("command", 5, 'key "command" must hold text, got 5.'),
    ("seed", "x", 'key "seed" must hold a whole number, got "x".'),
    ("lens", 3, 'key "lens" must hold text'),
    ("relations", 3, 'key "relations" must hold a list'),
    ("notes", 3, 'key "notes" must hold a list'),
    ("versions", 3, 'key "versions" must hold an object'),
    ("durations", 5, 'key "durations" must hold an object'),
    ("durations", {"a": "x"}, 'key "durations.a" must hold a number, got "x".'),
    *[(section, 3, f'key "{section}" must hold an object {{…}}, got 3.') for section in (
        "config", "options", "data", "treebank", "coreference", "frequency", "lenses", "clusters",
        "importance", "knock_out", "pruning", "fronts", "fixing", "gates", "learned_masks", "mask_table", "film",
    )],
    *[(f"importance.{key}", "x", f'key "importance.{key}" must hold') for key in (
        "config", "examples", "intact", "notes", "skipped", "truncated", "unknown",
    )],
    *[(f"importance.{key}", 3, f'key "importance.{key}" must hold text') for key in (
        "knows_nothing", "metric", "mode", "task", "way",
    )],
    *[(f"pruning.{key}", "x", f'key "pruning.{key}" must hold') for key in (
        "after", "count", "evaluations", "intact", "of", "reported_on", "saved", "seconds", "selected_on",
        "target", "unknown",
    )],
    *[(f"pruning.{key}", 3, f'key "pruning.{key}" must hold text') for key in (
        "advice", "knows_nothing", "metric", "objective", "removed", "search", "task", "timed", "warning",
    )],
    *[(f"data.{key}", "x", f'key "data.{key}" must hold') for key in ("files", "read", "tokens", "unknown", "used")],
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), FILES)
def test_a_damaged_file_is_refused(study: Path, damage: Damage, message: str) -> None:
    damage(study)
    error = refusal(study)
    assert message in error
    assert error.startswith(f"{study}/")


@pytest.mark.parametrize(("key", "value", "message"), KEYS)
def test_a_wrong_key_of_the_run_record_is_refused(
    study: Path, key: str, value: object, message: str
) -> None:
    set_key(key, value)(study)
    assert refusal(study).startswith(f"{study / 'run.json'}: {message}")


@pytest.mark.parametrize(
    "change",
    [
        edit("roles.csv", lambda data: data.replace(b"\n", b"\r\n")),
        edit("roles.csv", lambda data: b"\xef\xbb\xbf" + data),  # as spreadsheets write it
        edit("roles.csv", lambda data: data + b"\n"),
        lambda folder: (folder / "heads.csv").unlink(),
        set_key("mine", 5),
        set_key("importance.task", None),
        set_key("importance", ...),
    ],
)
def test_what_changes_nothing_is_accepted(study: Path, change: Damage) -> None:
    change(study)
    pd.testing.assert_frame_equal(Study(study).tables["roles"], Study(OLD).tables["roles"])


@pytest.mark.parametrize("data", [b"", b"a,b\n1,2,3\n4,5,6,7\n", b"\xff\xfe", b'"open'])
def test_a_file_of_somebody_else_is_ignored(study: Path, data: bytes) -> None:
    (study / "notes.csv").write_bytes(data)
    (study / "folder.csv").mkdir()
    assert "folder" not in Study(study).tables
    assert set(Study(study).tables) - {"notes"} == set(Study(OLD).tables)
