"""Removal of local paths from pages, which others may read: only names of files and directories are shown.

The run record keeps whole paths.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

# /a/b, ~/a, ./a, ../a; neither org/name nor a/b.txt
_LOCAL = re.compile(r"(?:~[\w.-]*|\.{1,2})?/.*", re.DOTALL)
# A path without its last part
_FOLDERS = re.compile(r"(?<![\w/:~.])(?:~[\w.-]*|\.{1,2})?/(?:[^\s/,'\"()]+/)+")
_PARTS = re.compile(r"([=,]|datasets:)")  # separators of paths within a word


def local_name(name: str) -> str:
    """The last part of a local path; any other name as it is: a hub id, a relative path."""
    return (PurePath(name).name or name) if _LOCAL.fullmatch(name) else name


def without_paths(value: Any, key: str = "") -> Any:
    """A run record, or a part of it, with names in place of local paths."""
    if isinstance(value, Mapping):
        return {name: without_paths(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item, key) for item in value]
    if isinstance(value, PurePath):
        return value.name
    if not isinstance(value, str):
        return value
    if key == "path":
        return PurePath(value).name or value
    if key == "command":
        return _command(value)
    return local_name(value) if _LOCAL.fullmatch(value) else _FOLDERS.sub("", value)


def _command(command: str) -> str:
    """A command with names in place of local paths, also after `=`, a comma or `datasets:`."""
    try:
        words = shlex.split(command)
    except ValueError:  # not a valid command line
        return _FOLDERS.sub("", command)
    return shlex.join("".join(map(local_name, _PARTS.split(word))) for word in words)
