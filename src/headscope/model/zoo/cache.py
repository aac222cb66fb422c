"""The cache of fetched models. A model in the cache is always complete.

    <cache>/models/NAME          a complete model; headscope.json is the last file that is written
    <cache>/partial/NAME/        files of a fetch that is running or was killed
    <cache>/partial/NAME.lock    an empty file, locked by the process that fetches the model; never deleted

A model is made in `partial` and moved to `models` by one rename. The kernel releases the lock when the process ends,
even after kill -9 or in another container. A directory in `partial` whose lock is free is therefore not used by any
process.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headscope.errors import HeadscopeError, choices
from headscope.model.zoo.models import MODELS
from headscope.model.zoo.wheels import sha256_of

MARKER = "headscope.json"


def cache_directory() -> Path:
    """$HEADSCOPE_CACHE, else $XDG_CACHE_HOME/headscope, else ~/.cache/headscope."""
    if cache := os.environ.get("HEADSCOPE_CACHE"):
        return Path(cache).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "headscope"
    return Path.home() / ".cache" / "headscope"


def check_name(name: str) -> str:
    """The name; raises an error with suggestions if there is no such model."""
    if name not in MODELS:
        raise HeadscopeError(f'model "{name}" is unknown', expected=choices(name, MODELS))
    return name


def find(name: str) -> Path | None:
    """The directory of a zoo model on this machine; None if there is none. Files are not checked (`verify`)."""
    if name not in MODELS:
        return None
    if models := os.environ.get("HEADSCOPE_MODELS"):
        directory = Path(models).expanduser() / name
        if (directory / "config.json").is_file():
            return directory
    directory = cache_directory() / "models" / name
    return directory if (directory / MARKER).is_file() else None


def is_damaged(name: str) -> bool:
    """Whether the files of a fetched model have changed; models under HEADSCOPE_MODELS are not checked."""
    directory = find(name)
    if directory is None or not (directory / MARKER).is_file():
        return False
    try:
        verify(name)
    except HeadscopeError:
        return True
    return False


def verify(name: str) -> None:
    """Hash every file of a model again; raises an error that names the first missing, changed or additional file."""
    directory = find(check_name(name))
    if directory is None:
        raise HeadscopeError(f'model "{name}" is not on this machine', fix="Fetch it first")
    if not (directory / MARKER).is_file():
        raise HeadscopeError(
            f"there is no {MARKER} that says what the files should be",
            where=directory,
            fix="Only models that headscope fetched can be verified",
        )
    record = _read_record(directory)
    for file in sorted(record.keys() | _files_in(directory)):
        path = directory / file
        if file not in record:
            raise _damaged(path, "was not there when the model was fetched")
        elif not path.is_file():
            raise _damaged(path, "is missing")
        elif (sha256 := sha256_of(path)) != record[file]:
            hashes = f"sha256 {sha256[:12]}… found, {record[file][:12]}… when fetched"
            raise _damaged(path, f"is damaged ({hashes})")


def _read_record(directory: Path) -> dict[str, str]:
    """{file: sha256} from the marker file."""
    try:
        recorded = json.loads((directory / MARKER).read_text("utf-8"))["files"]
        return {str(name): str(sha256) for name, sha256 in recorded.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise _damaged(directory / MARKER, "cannot be read") from cause


def _damaged(path: Path, what: str) -> HeadscopeError:
    fix = "Fetch it again: headscope models fetch NAME"
    return HeadscopeError(f"this file {what}", where=path, fix=fix)


def _files_in(directory: Path) -> set[str]:
    """The paths of all files below a directory except the marker file."""
    paths = (
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    return {path for path in paths if path != MARKER}


def write_marker(directory: Path, facts: dict[str, object]) -> None:
    """Write the last file of a model: a description of the model, and the sha256 of every other file."""
    hashes = {name: sha256_of(directory / name) for name in sorted(_files_in(directory))}
    text = json.dumps({**facts, "files": hashes}, indent=2, ensure_ascii=False)
    (directory / MARKER).write_text(text + "\n", "utf-8")


@contextmanager
def workspace(name: str, when_waiting: Callable[[], None]) -> Iterator[Path]:
    """While open, an empty directory in which only this process makes the model `name`; deleted at the end.

    when_waiting  called if another process is making the model, before waiting for it
    """
    partial = cache_directory() / "partial"
    partial.mkdir(parents=True, exist_ok=True)
    with _lock(partial / f"{name}.lock", when_waiting):
        _sweep(partial, except_for=name)
        work = partial / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def publish(work: Path, made: Path, name: str) -> Path:
    """Move a complete model into the cache by one rename; an existing directory is moved to `work`."""
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                # Otherwise a power failure could keep the rename but lose the content.
                os.fsync(file)
    target = cache_directory() / "models" / name
    target.parent.mkdir(exist_ok=True)
    if target.exists() or target.is_symlink():
        target.rename(work / "replaced")
    made.rename(target)
    return target


@contextmanager
def _lock(path: Path, when_waiting: Callable[[], None]) -> Iterator[None]:
    """While open, this process has the lock of a file."""
    import fcntl

    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sweep(partial: Path, except_for: str) -> None:
    """Delete the directories of killed fetches of other models: those whose lock is free."""
    import fcntl

    for directory in partial.iterdir():
        if not directory.is_dir() or directory.name == except_for:
            continue
        with (partial / f"{directory.name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(directory, ignore_errors=True)


def unwritable(cause: OSError) -> HeadscopeError:
    """The error for a full disk or a cache that cannot be written."""
    is_full = cause.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(cause)
    what = "the disk is full" if is_full else f"the model cannot be written: {cause}"
    action = "Free disk space" if is_full else "Make it writable"
    fix = f"{action}, or name another directory by HEADSCOPE_CACHE"
    return HeadscopeError(what, where=cache_directory(), fix=fix)
