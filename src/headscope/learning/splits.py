"""The examples of the train, selection and report splits: from files, or held out from a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headscope.config.shared import TaskData
from headscope.data.held_out import BLOCK, check_held_out, is_held_out
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.tasks import Task
from headscope.tasks.items import Item, check_apart, sample_evenly

MAX_SELECTION = 500  # maximum number of examples that are evaluated after every epoch
HELD_OUT = 0.1  # share of a corpus without splits that is not trained on


class Splits(NamedTuple):
    """The files of a task's data, and the examples of the train, selection and report splits."""

    files: list[Path]
    train: list[Item]
    select: list[Item]
    report: list[Item]


def read_splits(task: Task, data: TaskData, *, trains: bool = True) -> Splits:
    """Read the splits. trains: whether a model is trained; if not, only the report split is read."""
    assert data.report_on is not None
    if not trains:
        file = find_split(data.data, data.report_on, task=task.name)
        return Splits([file], [], [], task.items(file, data.report_on, limit=data.report_limit))
    limits = (
        ("train", data.limit),
        (data.select_on, MAX_SELECTION),
        (data.report_on, data.report_limit),
    )
    splits = [(name, limit) for name, limit in limits if name is not None]
    files = [find_split(data.data, name, task=task.name) for name, _ in splits]
    if files[0] in files[1:]:
        if not task.is_free_of_labels:
            expected = "a directory with a train file and a dev file"
            raise HeadscopeError("there is no train file", where=data.data, expected=expected)
        return _hold_out(task, data, files[0])
    items = [
        task.items(file, name, limit=limit)
        for file, (name, limit) in zip(files, splits, strict=True)
    ]
    select = items[1] if len(items) == 3 else []
    check_apart(select, items[-1], "`report_on`")
    return Splits(sorted(set(files)), items[0], select, items[-1])


def _hold_out(task: Task, data: TaskData, file: Path) -> Splits:
    """Splits of a corpus. Half of each held-out block of texts is for selection, the other half for the report."""
    items = task.items(file, "train", limit=None)
    check_held_out(HELD_OUT, len(items), str(file))
    train: list[Item] = []
    select: list[Item] = []
    report: list[Item] = []
    for index, item in enumerate(items):
        half = select if index % BLOCK < BLOCK // 2 else report
        (half if is_held_out(index, HELD_OUT) else train).append(item)
    return Splits(
        [file],
        sample_evenly(train, data.limit, file),
        sample_evenly(select, MAX_SELECTION, file),
        sample_evenly(report, data.report_limit, file),
    )
