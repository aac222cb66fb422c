"""Output directories that are complete or absent: written as `OUT.partial`, renamed to OUT at the end."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headscope.errors import HeadscopeError

OWNER = ".owner"  # in OUT.partial: locked by the process that writes it
# What a directory holds, by the name of its record
KINDS = {"run.json": "a study", "cut.json": "a pruned model", "training.json": "a trained model"}
NEW_DIRECTORY, CHOOSE_ANOTHER = "the name of a new directory", "Choose another `out`"
PAGES = (".html", ".htm")
PICTURES = (".gif", ".jpg", ".jpeg", ".pdf", ".png", ".svg")
OTHER_FILES = (".csv", ".ipynb", ".json", ".md", ".npz", ".tsv", ".txt", *PICTURES)
REPLACE = "Add `overwrite=True` to replace it, or choose another `out`"


@contextmanager
def atomic_directory(
    out: str | Path | None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keep: Sequence[str] = (),
    record: str = "run.json",
) -> Iterator[Path]:
    """A temporary directory to write into. On leaving it is renamed to `out`; after an exception it is deleted.

    keep    files that remain after an exception, so that the run can be resumed
    resume  start with the files that an earlier run kept
    record  the file that marks a directory of the same kind, which may be overwritten

    Without `out` it is a temporary directory that is deleted on leaving.
    """
    if out is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    final, partial = _places(out)
    created = [folder for folder in final.parents if not folder.exists()]  # the innermost first
    try:
        check_free(out, overwrite=overwrite, resume=resume, keep=keep, record=record)
        partial.mkdir(parents=True, exist_ok=True)
        with _lock(partial, out):
            try:
                _empty(partial, keep if resume else ())
                yield partial
                _replace(partial, final)
                (final / OWNER).unlink()  # last: the lock must hold until the rename is done
                created = []
            except BaseException:
                if any((partial / name).exists() for name in keep):
                    created = []
                    raise
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as cause:
        is_full = cause.errno == errno.ENOSPC
        raise HeadscopeError(
            f"cannot be written: {os.strerror(cause.errno) if cause.errno else cause}",
            where=out,
            expected="a writable directory with free space",
            fix="Free some space, or choose another `out`" if is_full else CHOOSE_ANOTHER,
        ) from cause
    finally:
        for folder in created:
            with suppress(OSError):  # not created, or in use by another process
                folder.rmdir()


def _places(out: str | Path) -> tuple[Path, Path]:
    """OUT and OUT.partial."""
    final = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow a link that is to be replaced
    return final, final.with_name(f"{final.name}.partial") if final.name else final


def check_free(
    out: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keep: Sequence[str] = (),
    record: str = "run.json",
) -> None:
    """Refuse an `out` that `atomic_directory` would refuse, before hours of work. Creates nothing."""
    final, partial = _places(out)
    if final.exists() and not final.is_dir():
        what, expected = "this is a file", NEW_DIRECTORY
        raise HeadscopeError(what, where=out, expected=expected, fix=CHOOSE_ANOTHER)
    if not final.exists() and final.suffix.lower() in (*PAGES, *OTHER_FILES):
        what = f'a directory is written, and its name must not end in {final.suffix}, got "{final.name}"'
        raise HeadscopeError(what, where=out, fix=CHOOSE_ANOTHER)
    if read_record(final, record):
        if not overwrite:
            raise HeadscopeError(f"{KINDS[record]} is already there", where=out, fix=REPLACE)
    elif not final.name or (final.exists() and any(final.iterdir())):
        what, expected = f"the directory is neither {KINDS[record]} nor empty", NEW_DIRECTORY
        raise HeadscopeError(what, where=out, expected=expected, fix=CHOOSE_ANOTHER)
    stopped = next((name for name in keep if (partial / name).exists()), None)
    if stopped is not None and not (resume or overwrite):
        fix = "Add `resume=True` to go on with it, or `overwrite=True` to begin anew"
        raise HeadscopeError(f"a run that was stopped is there ({stopped})", where=partial, fix=fix)


def read_record(folder: Path, name: str = "run.json") -> dict[str, Any]:
    """The run record of a study; empty if there is none, or if it is the `run.json` of another program."""
    try:
        record = json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and "schema" in record else {}


@contextmanager
def _lock(partial: Path, out: str | Path) -> Iterator[None]:
    """Lock the directory for this process. The kernel releases the lock when the process ends, also after kill -9."""
    import fcntl

    with (partial / OWNER).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "Wait for it, or choose another `out`"
            raise HeadscopeError("another run is writing to it", where=out, fix=fix) from None
        yield


def _empty(partial: Path, keep: Sequence[str]) -> None:
    """Delete what a killed run left, except the files to keep."""
    for path in partial.iterdir():
        if path.is_dir() and not path.is_symlink() and path.name not in keep:
            shutil.rmtree(path)
        elif path.name not in (OWNER, *keep):
            path.unlink()


def _replace(partial: Path, final: Path) -> None:
    """Rename `partial` to `final`. If that fails, an existing `final` is restored."""
    if not (final.exists() or final.is_symlink()):
        partial.rename(final)
        return
    with TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent) as aside:
        old = final.rename(Path(aside) / "old")
        try:
            partial.rename(final)
        except BaseException:
            old.rename(final)
            raise
