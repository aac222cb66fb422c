"""Where are fetched models kept, and how does one get there whole or not at all?

    <cache>/models/NAME          a finished model; its last file written is headscope.json
    <cache>/partial/NAME/        a fetch under way, or what a killed one left
    <cache>/partial/NAME.lock    held by the process whose fetch it is; empty, and it stays

Work is done in `partial` and ends in one rename. The kernel drops the lock together with the process, also
after kill -9 and also in another container: what lies in `partial` without a held lock is nobody's.
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
    if named := os.environ.get("HEADSCOPE_CACHE"):
        return Path(named).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "headscope"
    return Path.home() / ".cache" / "headscope"


def check_name(name: str) -> str:
    """The name itself, or an error that lists the names there are."""
    if name not in MODELS:
        raise HeadscopeError(f'model "{name}" is unknown', expected=choices(name, MODELS))
    return name


def find(name: str) -> Path | None:
    """The directory of a zoo model that is on this machine, or None. Looks, does not hash (`verify` does)."""
    if name not in MODELS:
        return None
    if given := os.environ.get("HEADSCOPE_MODELS"):
        directory = Path(given).expanduser() / name
        if (directory / "config.json").is_file():
            return directory
    directory = cache_directory() / "models" / name
    return directory if (directory / MARKER).is_file() else None


def is_damaged(name: str) -> bool:
    """Whether a fetched model's files are not as they were; what others put under HEADSCOPE_MODELS is theirs."""
    directory = find(name)
    if directory is None or not (directory / MARKER).is_file():
        return False
    try:
        verify(name)
    except HeadscopeError:
        return True
    return False


def verify(name: str) -> None:
    """Hashes every file of a model again; the first that is missing, changed or new is named in the error."""
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
        elif (found := sha256_of(path)) != record[file]:
            was = record[file]
            raise _damaged(
                path, f"is damaged (sha256 {found[:12]}… found, {was[:12]}… when fetched)"
            )


def _read_record(directory: Path) -> dict[str, str]:
    try:
        recorded = json.loads((directory / MARKER).read_text("utf-8"))["files"]
        return {str(name): str(sha256) for name, sha256 in recorded.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise _damaged(directory / MARKER, "cannot be read") from cause


def _damaged(path: Path, what: str) -> HeadscopeError:
    fix = "Fetch it again: headscope models fetch NAME"
    return HeadscopeError(f"this file {what}", where=path, fix=fix)


def _files_in(directory: Path) -> set[str]:
    paths = (
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    return {path for path in paths if path != MARKER}


def write_marker(directory: Path, facts: dict[str, object]) -> None:
    """The last file of a model: what it is, and the sha256 of every other file."""
    hashes = {name: sha256_of(directory / name) for name in sorted(_files_in(directory))}
    text = json.dumps({**facts, "files": hashes}, indent=2, ensure_ascii=False)
    (directory / MARKER).write_text(text + "\n", "utf-8")


@contextmanager
def workspace(name: str, when_waiting: Callable[[], None]) -> Iterator[Path]:
    """An empty directory for making model `name`, one process at a time; gone when it ends."""
    partial = cache_directory() / "partial"
    partial.mkdir(parents=True, exist_ok=True)
    with _locked(partial / f"{name}.lock", when_waiting):
        _sweep(partial, except_for=name)
        work = partial / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def publish(work: Path, made: Path, name: str) -> Path:
    """Puts a finished model into its place by one rename. Something unfinished in that place makes way."""
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file)  # a power cut must not keep the rename and lose the bytes
    target = cache_directory() / "models" / name
    target.parent.mkdir(exist_ok=True)
    if target.exists() or target.is_symlink():
        target.rename(work / "replaced")
    made.rename(target)
    return target


@contextmanager
def _locked(path: Path, when_waiting: Callable[[], None]) -> Iterator[None]:
    import fcntl

    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sweep(partial: Path, except_for: str) -> None:
    """Removes what killed fetches of other models left: a directory whose lock nobody holds."""
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
    """What to tell a user whose disk is full or whose cache cannot be written."""
    full = cause.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(cause)
    what = "the disk is full" if full else f"the model cannot be written: {cause}"
    remedy = "Make room" if full else "Make it writable"
    fix = f"{remedy}, or name another directory by HEADSCOPE_CACHE"
    return HeadscopeError(what, where=cache_directory(), fix=fix)
