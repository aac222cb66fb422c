"""Translation of options in messages: the library names fields as in Python, the shell shows flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from headscope.errors import HeadscopeError

SEVERAL = (
    "--corpus",
    "--treebank",
    "--coreference",
    "--models",
    "--test",
)  # options that take several values, separated by blanks
_FIELD = re.compile(r"`([a-z_]+)(?:=([^`]+))?`")


def to_flags(text: str) -> str:
    """The text with every option in backticks as a flag: `batch_size` → --batch-size, `keep=N` → --keep N.

    `resume=True` is the bare flag. Words in backticks that are not an option of a command stay as they are.
    """
    return _FIELD.sub(_flag, text) if "`" in text else text


@contextmanager
def errors_in_flags() -> Iterator[None]:
    """Translate the options in errors of the library to flags."""
    try:
        yield
    except HeadscopeError as error:
        error.what = to_flags(error.what)
        if not isinstance(error.where, Path | None):
            error.where = to_flags(str(error.where))
        error.expected = error.expected and to_flags(error.expected)
        error.fix = error.fix and to_flags(error.fix)
        raise


@cache
def flags() -> dict[str, str]:
    """The flag of every option of every command, by its name in Python."""
    from typer.main import get_command

    from headscope.commands._app import app

    return dict(_flags_of(get_command(app)))


def _flags_of(command: Any) -> Iterator[tuple[str, str]]:
    for option in command.params:
        if option.param_type_name == "option":
            yield option.name, option.opts[0]
    for subcommand in getattr(command, "commands", {}).values():
        yield from _flags_of(subcommand)


def _flag(field: re.Match[str]) -> str:
    name, value = field.groups()
    flag = flags().get(name)
    if flag is None:
        return field[0]
    return flag if value in (None, "True") else f"{flag} {_shell_value(flag, value)}"


def _shell_value(flag: str, value: str) -> str:
    """A Python value as it is typed in the shell: "star" → star, [A, B] → A B or A,B, {"text": "NAME"} → text=NAME."""
    if value[0] == '"':
        return value[1:-1]
    if value[0] == "{":
        return value[1:-1].replace('"', "").replace(": ", "=").replace(", ", ",")
    if value[0] == "[":
        return value[1:-1].replace('"', "").replace(", ", " " if flag in SEVERAL else ",")
    return value
