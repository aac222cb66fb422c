"""The run record (run.json): its keys and their types, and how records of version 0.1 are read.

The types are those of JSON, so that a record is written and read as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from headscope.config.edit_record import EditRecord
from headscope.data.records import FORMER_HALVES
from headscope.errors import HeadscopeError
from headscope.study.schema.check_json import check_keys, check_required, check_type, wrong_value
from headscope.study.schema.read_file import read_json

SCHEMA = 1

# Sections of the first command, which are kept when another one adds to the study
COMMON = ("schema", "versions", "model", "data", "options", "seed", "lens")
_FORMER_HALF = re.compile(f"(train|dev|test):({'|'.join(FORMER_HALVES)})")
_FORMER_TARGETS = {"heads", "sparsity", "keep_metric", "speedup"}
Section = dict[str, Any]  # options, data and results of one command


class FileRecord(TypedDict):
    """An input file; a stream has no digest."""

    path: str
    sha256: NotRequired[str]


ModelRecord = TypedDict(
    "ModelRecord",
    {
        "name": str,
        "revision": str | None,
        "class": str,
        "family": str,
        "sha256": str,
        "dtype": str,
        "device": str,
        "layers": dict[str, int],  # by stack
        "heads": dict[str, int],  # by stack: one more than the largest number of a head
        "shared_layers": NotRequired[Any],
        "natural_language": NotRequired[bool],
        "cut": NotRequired[str],
        "cut_from": NotRequired[str],
        "fixed": NotRequired[dict[str, str]],
        "reading": dict[str, object],
        "notes": list[str],
        "edits": list[dict[str, object]],
    },
)


class RunRecord(TypedDict, total=False):
    """run.json of a study or a comparison. A study holds the sections of the commands that it was made by."""

    schema: int
    kind: Literal["comparison"]  # a study has none
    command: str
    config: Section  # all options by name
    versions: dict[str, str]
    model: ModelRecord
    seed: int
    lens: str
    durations: dict[str, float]  # seconds
    options: Section
    pages: list[Any]
    notes: list[str]
    # analyze
    data: Section | None
    treebank: Section
    coreference: Section
    frequency: Section
    relations: list[str]
    lenses: Section
    clusters: Section
    # other commands
    importance: Section
    knock_out: Section
    pruning: Section
    fronts: Section
    fixing: Section
    gates: Section
    learned_masks: Section
    mask_table: Section
    film: Section
    # probe
    train: Section
    test: Section
    vectors: Section
    # compare
    studies: list[Section]


# What sections hold under these names, by the types of JSON; null is always allowed. Other names are not checked.
_NAMES: list[tuple[type, str]] = [
    (str, "task metric mode way search objective removed timed advice warning knows_nothing rules"),
    (int, "examples read used sequences tokens source_tokens texts documents mentions count of"),
    (int, "truncated windowed shortest longest"),
    (float, "seconds evaluations mean_length"),
    (list, "files notes"),
    (dict, "config unknown skipped malformed intact target after selected_on reported_on saved"),
    (dict, "patterns settings options"),
]
SECTION_KEYS = {name: kind for kind, names in _NAMES for name in names.split()}
_SECTIONS = (
    *("data", "treebank", "coreference", "train", "test", "importance", "knock_out", "pruning"),
    *("fronts", "fixing", "gates", "learned_masks", "mask_table"),
)


def read_run_record(path: Path) -> RunRecord:
    """The run record of a study."""
    record = read_json(path)
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != SCHEMA:
        raise HeadscopeError(
            f"the study has schema {schema!r}",
            where=path,
            expected=f"schema {SCHEMA}",
            fix="Make it again with headscope analyze",
        )
    return upgrade_record(record, path)


def upgrade_record(record: Section, path: Path) -> RunRecord:
    """A record as it was read from this file, checked, with the edits of version 0.1 as data and present names."""
    record = rename_values(record)
    check_type({**record, "model": {}}, RunRecord, "", path)  # the model: below
    for name in _SECTIONS:
        check_keys(record.get(name) or {}, SECTION_KEYS, name, path)
    if record.get("kind") == "comparison":
        for i, study in enumerate(record.get("studies", [])):
            # A comparison of studies that were in memory has no models.
            if study.get("model", {}) != {}:
                _upgrade_model(study["model"], f"studies.{i}.model", path)
    else:
        check_required(record, ("model",), "", path)
        _upgrade_model(record["model"], "model", path)
    return cast("RunRecord", record)


def rename_values(value: Any) -> Any:
    """JSON values with the present names of splits and targets: `dev:even` was an earlier name of `dev:half-a`."""
    if isinstance(value, dict):
        is_target = set(value) == _FORMER_TARGETS
        return {
            "remove" if is_target and name == "heads" else name: rename_values(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [rename_values(item) for item in value]
    if isinstance(value, str) and (match := _FORMER_HALF.fullmatch(value)):
        return f"{match[1]}:{FORMER_HALVES[match[2]]}"
    return value


def _upgrade_model(model: Any, key: str, path: Path) -> None:
    check_type(model, dict, key, path)
    edits = model.get("edits", [])
    check_type(edits, list, f"{key}.edits", path)
    if edits:
        model["edits"] = [_edit(edit, f"{key}.edits.{i}", path) for i, edit in enumerate(edits)]
    check_type(model, ModelRecord, key, path)
    check_required(model, ("name", "layers", "heads"), key, path)


def _edit(edit: object, key: str, path: Path) -> dict[str, object]:
    """An edit as data; version 0.1 stored text."""
    is_data = isinstance(edit, dict) and isinstance(edit.get("kind"), str) and edit["kind"]
    if not (is_data or isinstance(edit, str)):
        raise wrong_value(key, 'an edit {"kind": NAME, …}', edit, path)
    return EditRecord.read(edit).as_json()


def join_records(first: RunRecord, second: RunRecord) -> RunRecord:
    """The record of a study to which another command added: sections are those of the second command."""
    common = {name: value for name, value in first.items() if name in COMMON or name not in second}
    joined = cast("RunRecord", {**second, **common})
    joined["durations"] = {**first.get("durations", {}), **second.get("durations", {})}
    commands = [record["command"] for record in (first, second) if record.get("command")]
    joined["command"] = "\n".join(commands)
    return joined
