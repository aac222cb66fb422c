"""Checks before anything is loaded: input files exist, outputs can be written. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.atomic_dir import check_free, read_record
from headscope.config.names import TASKS
from headscope.config.option import Config
from headscope.data import hf_datasets as hub
from headscope.data.bundled import corpus_path, treebank_path
from headscope.data.examples import read_examples
from headscope.data.frequency import frequency_file
from headscope.data.records import find_split
from headscope.data.text_lines import can_be_read_again, read_lines
from headscope.errors import HeadscopeError

Values = Mapping[str, Any]
TRAINED_MODEL = "a model that headscope trained with `checkpoints=N`"
RECORDS = ("run.json", "cut.json")  # of directories that hold a study


def check_files(main: type[Config], values: Values) -> None:
    """Refuse files and directories that do not exist, or whose first line cannot be read. main: the main config."""
    for path in values.get("coreference") or ():
        _check_lines(path)
    for name in ("treebank", "test"):  # test: treebanks to evaluate probes on
        for path in values.get(name) or ():
            _check_lines(treebank_path(path))
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
    if main.command == "compare" and len(values["studies"]) < 2:
        raise HeadscopeError(
            "one study cannot be compared",
            where="STUDY",
            expected="two studies or more",
            fix="Make another one with headscope analyze",
        )
    roles = values.get("roles")
    for study in (*(values.get("studies") or ()), *(values.get("study") or ()), roles):
        if study is not None:
            _check_study(Path(study))
    trained = values["model"] if values.get("checkpoints") is True else None
    if trained is not None and not Path(trained).is_dir():
        raise HeadscopeError("there is no such directory", where=trained, expected=TRAINED_MODEL)
    _check_data(main, main.complete(values))


def _check_lines(path: str | Path) -> None:
    if can_be_read_again(path):
        next(read_lines(path), None)


def _check_corpus(values: Values) -> None:
    """Read the first text of each file in the way in which the command will read it."""
    pairs, column = bool(values.get("pairs")), values.get("column")
    for path in values["corpus"]:
        if can_be_read_again(corpus_path(path)):
            next(read_examples([path], pairs=pairs, column=column), None)


def _check_data(main: type[Config], values: Values) -> None:
    """Find the file of each split that the command will read. Data sets of the hub are fetched later."""
    data, task, splits = values.get("data"), values.get("task"), main.splits_read(values)
    if data is None or task not in TASKS or hub.is_id(data):
        return
    if "," in str(data) and not Path(data).exists():
        if "train" in splits:
            return  # the task refuses this later: a pair of files holds only one split
        for path in str(data).split(",", 1):
            _check_lines(path.strip())
        return
    for split in splits:
        find_split(data, values.get(split, split), task=task)


def _check_study(directory: Path) -> None:
    if not directory.is_dir():
        raise HeadscopeError(
            "there is no such directory", where=directory, expected="a study that a command wrote"
        )
    folders = (directory, directory / "study")
    if not any((folder / name).exists() for folder in folders for name in RECORDS):
        raise HeadscopeError(
            "not a study (No such file or directory)",
            where=directory / RECORDS[0],
            expected="a directory written by headscope analyze, or by another command that makes a study",
        )


def check_out(main: type[Config], values: Values) -> None:
    """Refuse an output that cannot be written, or that exists and holds something else."""
    out = values.get("out")
    if out is None:
        return
    overwrite, resume = bool(values.get("overwrite")), bool(values.get("resume"))
    if main.command in ("look", "report"):
        from headscope.report.page_file import check_page_path, page_path

        check_page_path(page_path(out), overwrite=overwrite or main.command == "look")
        if values.get("tables") is not None:
            check_free(values["tables"], overwrite=overwrite)
    elif main.command == "demo":
        check_free(out, overwrite=is_demo(Path(out)))
    elif main.output is None:
        from headscope.report.rendered_figures import check_picture

        check_picture(Path(out))
    else:
        output = main.output
        overwrite = overwrite or is_added_to(out, output.part, overwrite=overwrite)
        check_free(out, overwrite=overwrite, resume=resume, keep=output.kept, record=output.record)


def is_added_to(out: str | Path, part: str, *, overwrite: bool) -> bool:
    """Whether `out` is a study to which a command adds its `part`. A study that has the part is refused."""
    record = read_record(Path(out)) if part else {}
    if part in record and not overwrite:
        fix = "Add `overwrite=True` to replace it, or choose another `out`"
        raise HeadscopeError(f"the study already has results for {part}", where=out, fix=fix)
    return bool(record)


def is_demo(out: Path) -> bool:
    """Whether an existing directory was written by `headscope demo`, which replaces only its own results."""
    return str(read_record(out).get("command", "")).startswith("headscope demo")


def find_partial(main: type[Config], values: Values) -> Path | None:
    """The directory in which a stopped run left finished work; None if there is none."""
    if values.get("out") is None or main.output is None:
        return None
    partial = Path(f"{values['out']}.partial")
    return partial if any((partial / name).exists() for name in main.output.kept) else None
