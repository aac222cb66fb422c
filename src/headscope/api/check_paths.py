"""Files that must exist and outputs that must be free, checked before anything is loaded; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.atomic_dir import check_free, check_page, read_record
from headscope.config.names import TASKS
from headscope.config.requirements import chooses_on_data
from headscope.data import hf_datasets as hub
from headscope.data.bundled import named
from headscope.data.examples import read_examples
from headscope.data.frequency import frequency_file
from headscope.data.records import find_split
from headscope.data.text_lines import can_be_read_again, read_lines
from headscope.errors import HeadscopeError

Values = Mapping[str, Any]

SPLITS = {  # the splits of `data` that a command reads: a name, or the option that holds it
    "evaluate": ("split",),
    "importance": ("split",),
    "prune": ("select_on", "report_on"),
    "fix": ("select_on", "report_on"),
    "finetune": ("train", "select_on"),
    "gate": ("train", "select_on", "report_on"),
    "learn-mask": ("train", "select_on", "report_on"),
    "masks compare": ("report_on",),
}
STUDY, CUT, TRAINED = "run.json", "cut.json", "training.json"
WRITTEN = {  # the record of the directory that a command writes, and what a run that was stopped leaves of it
    "analyze": (STUDY, ()),
    "compare": (STUDY, ()),
    "film": (STUDY, ("header.json",)),
    "finetune": (TRAINED, ("state.pt", "best.pt")),
    "fix": (CUT, ("alone", "reported", "journal.jsonl")),
    "fronts": (STUDY, ()),
    "gate": (STUDY, ("header.json",)),
    "importance": (STUDY, ("journal.jsonl",)),
    "knock-out": (STUDY, ()),
    "learn-mask": (STUDY, ("header.json",)),
    "masks compare": (STUDY, ("header.json",)),
    "pretrain": (TRAINED, ("state.pt", "best.pt")),
    "probe": (STUDY, ()),
    "prune": (CUT, ("journal.jsonl", "steps.json", "cut", "recovered.partial", "recovered")),
}
ADDED = {
    "importance": "importance",
    "knock-out": "knock_out",
}  # what is added to a study that is there already


def check_files(command: str, values: Values) -> None:
    """Refuse files and directories that do not exist, or whose first line cannot be read."""
    for name in ("treebank", "coreference", "test"):
        for path in values.get(name) or ():
            _check_lines(path)
    if isinstance(values.get("corpus"), list | tuple):
        _check_corpus(values)
    if values.get("vectors") is not None:
        _check_lines(values["vectors"])
    frequency = values.get("frequency")
    if frequency not in (None, "corpus"):
        _check_lines(frequency_file(frequency))
    if values.get("plan") is not None and not Path(values["plan"]).is_file():
        raise HeadscopeError(
            "cannot be read: No such file or directory",
            where=values["plan"],
            expected="a plan that headscope wrote",
        )
    if command == "compare" and len(values["studies"]) < 2:
        raise HeadscopeError(
            "one study cannot be compared",
            where="STUDY",
            expected="two studies or more",
            fix="Make another one with headscope analyze",
        )
    for study in (*(values.get("studies") or ()), *(values.get("study") or ()), *_roles(values)):
        _check_study(Path(study))
    if command == "film" and not Path(values["trained"]).is_dir():
        raise HeadscopeError(
            "there is no such directory",
            where=values["trained"],
            expected="a model trained by headscope",
        )
    _check_data(command, values)


def _roles(values: Values) -> tuple[str | Path, ...]:
    return () if values.get("roles") is None else (values["roles"],)


def _check_lines(path: str | Path) -> None:
    if can_be_read_again(path):
        next(read_lines(path), None)


def _check_corpus(values: Values) -> None:
    """The first text of each file, read as it will be read."""
    files = [path for path in values["corpus"] if can_be_read_again(named(path))]
    for path in files:
        next(
            read_examples([path], pairs=bool(values.get("pairs")), column=values.get("column")),
            None,
        )


def _check_data(command: str, values: Values) -> None:
    """The files of the splits that will be read. Data sets by id are fetched later."""
    data, task = values.get("data"), values.get("task")
    if command == "learn-mask" and isinstance(values.get("corpus"), str):
        data, task = values["corpus"], "masked"
    if data is None or task not in TASKS or hub.is_id(data):
        return
    if "," in str(data) and not Path(data).exists():
        if "train" in SPLITS.get(command, ()):
            return  # refused later: two files are one split
        for path in str(data).split(",", 1):
            _check_lines(path.strip())
        return
    for split in SPLITS.get(command, ()):
        if command == "prune" and split == "select_on" and not chooses_on_data(values):
            continue
        find_split(data, values.get(split, split), task=task)


def _check_study(place: Path) -> None:
    if not place.is_dir():
        raise HeadscopeError(
            "there is no such directory", where=place, expected="a study that a command wrote"
        )
    if not any(
        (folder / name).exists() for folder in (place, place / "study") for name in (STUDY, CUT)
    ):
        raise HeadscopeError(
            "not a study (No such file or directory)",
            where=place / STUDY,
            expected="a directory written by headscope analyze, or by another command that makes a study",
        )


def check_out(command: str, values: Values) -> None:
    """Refuse a place that cannot be written to, or that holds something else."""
    out = values.get("out")
    if out is None:
        return
    overwrite, resume = bool(values.get("overwrite")), bool(values.get("resume"))
    if command == "look":
        from headscope.report.look.page_path import check_page_path, page_path

        check_page_path(page_path(out))
    elif command == "demo":
        check_free(out, overwrite=is_demo(Path(out)))
    elif command == "report":
        check_page(out, overwrite=overwrite)
    elif command in ("masks show", "speed"):
        from headscope.report.rendered_figures import check_picture

        check_picture(Path(out))
    elif command in WRITTEN:
        record, kept = WRITTEN[command]
        part, there = ADDED.get(command), read_record(Path(out))
        if part is not None and there and part not in there:
            overwrite = True  # it is added to
        elif part is not None and there and not overwrite:
            fix = "Add `overwrite=True` to replace it, or choose another `out`"
            raise HeadscopeError(f"the study there has its {part} already", where=out, fix=fix)
        check_free(out, overwrite=overwrite, resume=resume, keep=kept, record=record)


def is_demo(out: Path) -> bool:
    """Whether an existing directory was written by `headscope demo`: no other study is replaced."""
    return str(read_record(out).get("command", "")).startswith("headscope demo")


def kept_of(command: str, values: Values) -> Path | None:
    """The directory in which a run that was stopped left finished work; None if it left none."""
    out = values.get("out")
    if out is None or command not in WRITTEN:
        return None
    partial = Path(f"{out}.partial")
    return partial if any((partial / name).exists() for name in WRITTEN[command][1]) else None
