"""Tasks, one per file. Every concrete subclass of `Task` in this package is registered under its names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from headscope.config.names import TASKS_MEANT
from headscope.config.shared import TaskData
from headscope.errors import HeadscopeError, choices
from headscope.tasks.base import Judged, Task
from headscope.tasks.items import Item
from headscope.tasks.prepared import Prepared

__all__ = ["Item", "Judged", "Prepared", "Task", "get_task", "task_of", "tasks"]


@cache
def tasks() -> dict[str, type[Task]]:
    """Every task by name."""
    classes: dict[str, type[Task]] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Task) and not isabstract(value):
                classes |= dict.fromkeys(value.names, value)
    return dict(sorted(classes.items()))


def get_task(
    name: str, *, columns: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> Task:
    """A task by name.

    columns  names of columns in the data, by the names that the task expects
    labels   labels that the task expects, by the labels in the data
    """
    classes = tasks()
    if name not in classes:
        expected = choices(name, classes, TASKS_MEANT.get(name, ()))
        raise HeadscopeError(f'"{name}" is not a task', where="`task`", expected=expected)
    return classes[name](name, columns=columns, labels=labels)


def task_of(data: TaskData) -> Task:
    """The task of a config, given by name or as a `Task`."""
    if isinstance(data.task, str):
        return get_task(data.task, columns=data.columns, labels=data.labels)
    task: Task = data.task
    return task
