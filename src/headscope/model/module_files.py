"""The list of modules (`modules.json`) of a sentence-transformers directory. Does not import torch."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from headscope.errors import reason

MODULES = "modules.json"
MOST_BYTES = 10_000_000  # size limit of a JSON file or a licence


class CannotRead(Exception):
    """A module of the model cannot be applied; the message says why."""


def transformer_folder(folder: Path) -> Path:
    """The directory with the transformer: the model's directory itself, or its `0_Transformer` in old models."""
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    try:
        path = list_modules(folder)[0]["path"]
    except (CannotRead, IndexError):
        return folder
    return folder / path if (folder / path / "config.json").is_file() else folder


def list_modules(folder: Path) -> list[dict[str, Any]]:
    """The entries of modules.json; raises if a path leads out of the folder."""
    modules: list[dict[str, Any]] = read_json(folder, MODULES)
    is_list = isinstance(modules, list) and all(isinstance(module, dict) for module in modules)
    if not is_list or not modules:
        raise CannotRead(f"{MODULES} is not a list of modules")
    for module in modules:
        path, kind = module.get("path"), module.get("type")
        if not isinstance(path, str) or not isinstance(kind, str):
            raise CannotRead(f"{MODULES}: a module has no path or no type")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
            raise CannotRead(f'{MODULES}: the path "{path}" leads out of the directory')
    for module in modules[1:]:
        # Only the transformer may be in the directory itself: config.json there belongs to it.
        if PurePosixPath(module["path"]) == PurePosixPath("."):
            raise CannotRead(f"{MODULES}: {module['type']} has no directory of its own")
    return modules


def read_json(folder: Path, name: str) -> Any:
    """The content of a JSON file; raises `CannotRead`."""
    try:
        return json.loads(read_content(folder / name))
    except (ValueError, RecursionError) as cause:
        raise CannotRead(f"{name} is not JSON ({reason(cause)})") from cause


def read_content(path: Path) -> bytes:
    """The content of a file of at most MOST_BYTES; raises `CannotRead`."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CannotRead(f"{path.name} is too large ({path.stat().st_size / 1e6:.0f} MB)")
        return path.read_bytes()
    except OSError as cause:
        raise CannotRead(f"{path.name} cannot be read ({reason(cause)})") from cause
