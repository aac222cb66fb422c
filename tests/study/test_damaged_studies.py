"""A study that was damaged or edited by hand gives one line with the file, the place and what must hold."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headscope.analysis.read_study import read_study_or_comparison
from headscope.errors import HeadscopeError
from headscope.report.drawing.study_figure import StudyFigure
from headscope.study.schema.tables import COMPARISON_TABLES, TABLES
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


# Values

VALUES: list[tuple[Damage, str]] = [
    (set_cell("relations.csv", "low", "77"), 'relations.csv:2: column "low" must be at most column "high", got "77'),
    (set_cell("relations.csv", "accuracy", "inf"), 'relations.csv:2: column "accuracy" must hold a finite number'),
    (set_cell("roles.csv", "value", "-inf"), 'roles.csv:2: column "value" must hold a finite number'),
    (set_cell("roles.csv", "role", ""), 'roles.csv:2: column "role" must hold a role'),
    (set_cell("roles.csv", "role", "positional x"), 'roles.csv:2: column "role" must hold a role'),
    (edit("roles.csv", lambda data: data + data.splitlines()[1] + b"\n"), ": each row must have its own stack"),
    (edit("significance.csv", lambda data: data + data.splitlines()[1] + b"\n"), ": each row must have its own stack"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), VALUES)
def test_a_value_that_cannot_be_is_refused(study: Path, damage: Damage, message: str) -> None:
    damage(study)
    assert message in refusal(study)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(statistic=""), 'column "statistic" must hold STATISTIC'),
        (lambda frame: frame.assign(statistic="a@b@c"), 'column "statistic" must hold STATISTIC'),
        (lambda frame: frame.assign(low=9.0, high=8.0), 'column "low" must be at most'),
        (lambda frame: frame.assign(value=np.inf), 'column "value" must hold a finite'),
        (lambda frame: pd.concat([frame, frame[:1]]), "each row must have its own"),
    ],
)
def test_values_of_heads_are_checked_without_the_export(
    study: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    (study / "heads.csv").unlink()
    heads(change, study)
    assert "heads.parquet, row " in refusal(study)
    assert message in refusal(study)


# Maps: the model has 2 layers of 2 heads

ARRAYS: list[tuple[str, Any, str]] = [
    ("map/encoder", np.zeros((2, 2, 3)), "must have 4 axes, got shape (2, 2, 3)."),
    ("map/encoder", np.float64(1), "must have 4 axes, got shape ()."),
    ("map/encoder", np.array(["x"]), "must hold real numbers, got <U1."),
    ("map/encoder", np.zeros((2, 2, 3, 3), dtype=complex), "must hold real numbers, got complex128."),
    ("map/encoder", np.zeros((1, 2, 3, 3)), "must have 2 layers, got shape (1, 2, 3, 3)."),
    ("map/encoder", np.zeros((2, 4, 3, 3)), "must have 2 heads, got shape (2, 4, 3, 3)."),
    ("map/banana", np.zeros((2, 2, 3, 3)), 'must be of a stack of the model (encoder), got "banana".'),
    ("offset/encoder", np.zeros((2, 2, 4)), "must have an odd number of offsets"),
    ("offset/encoder", np.zeros((2, 2)), "must have 3 axes"),
    ("js/encoder", np.zeros((4, 3)), "must have as many rows as columns"),
    ("mask/soft", np.zeros(3), "must have 2 axes"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "array", "message"), ARRAYS)
def test_an_array_of_another_form_is_refused(
    study: Path, key: str, array: Any, message: str
) -> None:
    np.savez(study / "maps.npz", **{key: array})
    assert refusal(study).startswith(f'{study / "maps.npz"}: array "{key}" {message}')


def test_one_array_in_place_of_the_archive_is_refused(study: Path) -> None:
    with (study / "maps.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert "maps.npz: cannot be read (one array" in refusal(study)


def test_arrays_of_our_kinds_and_of_others_are_read(study: Path) -> None:
    maps = {"map/encoder": np.zeros((2, 2, 3, 3)), "offset/encoder": np.zeros((2, 2, 5))}
    np.savez(study / "maps.npz", **maps, mine=np.zeros(3, dtype=int))
    assert set(Study(study).maps) == {*maps, "mine"}


@pytest.mark.parametrize("name", TABLES)
def test_no_figure_is_drawn_from_a_table_without_rows(study: Path, name: str) -> None:
    header = ",".join(TABLES[name].names)
    (study / f"{name}.csv").write_text(f"{header}\n", "utf-8")

    class Figure(StudyFigure):
        table = name

    assert not Figure().applies(Study(study))


# Comparisons

MATCH = {"study": "a", "other": "b", "stack": "encoder", "within": "stack"}


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    """The tables of a comparison of two models with one head each."""
    rows: dict[str, dict[str, object]] = {
        "layers": {
            "study": "a",
            "stack": "encoder",
            "layer": 0,
            "statistic": "entropy",
            "heads": 1,
        },
        "matches": MATCH | {"layer": 0, "head": 0, "other_layer": 0, "other_head": 0},
        "matching": MATCH | {"matched": 1, "unmatched": 0, "statistics": 1},
    }
    for name, row in rows.items():
        table = COMPARISON_TABLES[name]
        table.frame([dict.fromkeys(table.names) | row]).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    record = {"schema": 1, "kind": "comparison", "studies": [{"name": "a"}, {"name": "b"}]}
    (tmp_path / "run.json").write_text(json.dumps(record), "utf-8")
    read_study_or_comparison(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (set_key("studies", 3), 'run.json: key "studies" must hold a list, got 3.'),
        (set_key("studies", [3]), 'run.json: key "studies.0" must hold an object {…}, got 3.'),
        (set_key("studies", []), "not a whole comparison."),
        (set_key("studies", [{"name": "x"}, {"name": "b"}]), 'layers.csv: column "study" must hold a study of run.'),
        (set_key("studies", [{"name": "a", "model": 3}]), 'key "studies.0.model" must hold an object'),
        (lambda folder: (folder / "matching.csv").unlink(), "matches.csv: must have the 0 rows that matching.csv"),
        (lambda folder: (folder / "matches.csv").unlink(), "matches.csv: must have the 1 rows that matching.csv"),
        (lambda folder: (folder / "layers.csv").unlink(), "not a whole comparison."),
        (edit("layers.csv", lambda data: data.splitlines()[0] + b"\n"), "not a whole comparison."),
        (set_cell("matches.csv", "other", "c"), 'matches.csv: column "other" must hold a study of run.json (a, b)'),
    ],
)  # fmt: skip
def test_a_damaged_comparison_is_refused(comparison: Path, damage: Damage, message: str) -> None:
    damage(comparison)
    assert message in refusal(comparison)
