"""The run record (run.json): its keys and their types, and how records of version 0.1 are read.

The types are those of JSON, so that a record is written and read as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

from headscope.config.edit_record import EditRecord

SCHEMA = 1

# Sections of the first command, which are kept when another one adds to the study
COMMON = ("schema", "versions", "model", "data", "options", "seed", "lens")
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
    kind: str  # "comparison"; a study has none
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


def upgrade_record(record: Section) -> RunRecord:
    """A record as it was read, with the edits of version 0.1 as data."""
    models = [record.get("model"), *(_models(record.get("studies")))]
    for model in models:
        if isinstance(model, dict) and isinstance(model.get("edits"), list):
            model["edits"] = [EditRecord.read(edit).as_json() for edit in model["edits"]]
    return cast("RunRecord", record)


def join_records(first: RunRecord, second: RunRecord) -> RunRecord:
    """The record of a study to which another command added: sections are those of the second command."""
    common = {name: value for name, value in first.items() if name in COMMON or name not in second}
    joined = cast("RunRecord", {**second, **common})
    joined["durations"] = {**first.get("durations", {}), **second.get("durations", {})}
    commands = [record["command"] for record in (first, second) if record.get("command")]
    joined["command"] = "\n".join(commands)
    return joined


def _models(studies: object) -> list[object]:
    listed = studies if isinstance(studies, list) else []
    return [study.get("model") for study in listed if isinstance(study, Mapping)]
