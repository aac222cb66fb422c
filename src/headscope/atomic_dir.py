"""A directory that is written: whole or not there.

While a run is under way, `OUT.partial` beside OUT holds what there is so far; at the end it takes OUT's name.
"""

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

OWNER = ".owner"  # in OUT.partial: locked by the process that is writing it
# Kinds of directories by the name of their record
KINDS = {"run.json": "a study", "cut.json": "a cut model", "training.json": "a trained model"}
NEW_DIRECTORY, CHOOSE_ANOTHER = "the name of a new directory", "Choose another `out`"
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
    """A folder to write a study into; becomes `out` on leaving, and is gone after an exception.

    keep    files of long work that outlive an exception, so that it can be taken up again
    resume  go on with what an earlier run left of these
    record  the file by which a directory of the same kind is known, which may be overwritten

    Without `out` it is a temporary directory that is deleted on leaving.
    """
    if out is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    final, partial = _places(out)
    made = [folder for folder in final.parents if not folder.exists()]  # the innermost first
    try:
        check_free(out, overwrite=overwrite, resume=resume, keep=keep, record=record)
        partial.mkdir(parents=True, exist_ok=True)
        with _owned(partial, out):
            try:
                _empty(partial, keep if resume else ())
                yield partial
                _take_place(partial, final)
                (final / OWNER).unlink()  # last: until the rename it keeps others out
                made = []
            except BaseException:
                if any((partial / name).exists() for name in keep):
                    made = []
                    raise
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as cause:
        is_full = cause.errno == errno.ENOSPC
        raise HeadscopeError(
            f"cannot be written: {os.strerror(cause.errno) if cause.errno else cause}",
            where=out,
            expected="a place with room that may be written to",
            fix="Free some space, or choose another `out`" if is_full else CHOOSE_ANOTHER,
        ) from cause
    finally:
        for folder in made:
            with suppress(OSError):  # never made, or somebody else has begun to use it
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
    """Refuse what `atomic_directory` would refuse, for work that is long before the first file. Creates nothing."""
    final, partial = _places(out)
    if final.exists() and not final.is_dir():
        what, expected = "this is a file", NEW_DIRECTORY
        raise HeadscopeError(what, where=out, expected=expected, fix=CHOOSE_ANOTHER)
    if read_record(final, record):
        if not overwrite:
            raise HeadscopeError(f"{KINDS[record]} is already there", where=out, fix=REPLACE)
    elif not final.name or (final.exists() and any(final.iterdir())):
        what, expected = f"the directory is neither {KINDS[record]} nor empty", NEW_DIRECTORY
        raise HeadscopeError(what, where=out, expected=expected, fix=CHOOSE_ANOTHER)
    left = next((partial / name for name in keep if (partial / name).exists()), None)
    if left is not None and not (resume or overwrite):
        raise HeadscopeError(
            f"a run that was stopped is there ({left.name})",
            where=partial,
            fix="Add `resume=True` to go on with it, or `overwrite=True` to begin anew",
        )


def check_page(out: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a place where no page can be written, before there is one."""
    place = Path(out)
    if place.suffix not in (".html", ".htm"):
        what = f'"{place.name}" is no page'
        raise HeadscopeError(what, where=out, expected="a name that ends in .html")
    if place.is_dir() or not place.parent.is_dir():
        what = "it is a directory" if place.is_dir() else f"there is no directory {place.parent}"
        raise HeadscopeError(f"cannot be written: {what}", where=out, fix=CHOOSE_ANOTHER)
    if place.exists() and not overwrite:
        raise HeadscopeError("a page is already there", where=out, fix=REPLACE)


def read_record(folder: Path, name: str = "run.json") -> dict[str, Any]:
    """The run record of a study; empty where there is none, or the `run.json` of another program."""
    try:
        record = json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and "schema" in record else {}


@contextmanager
def _owned(partial: Path, out: str | Path) -> Iterator[None]:
    """Hold the draft for this process. The kernel lets go of it when the process ends, also after kill -9."""
    import fcntl

    with (partial / OWNER).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "Wait for it, or choose another `out`"
            raise HeadscopeError("another run is writing it", where=out, fix=fix) from None
        yield


def _empty(partial: Path, keep: Sequence[str]) -> None:
    """Throw away what a killed run left, but for these files."""
    for left in partial.iterdir():
        if left.name in keep:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif left.name != OWNER:
            left.unlink()


def _take_place(partial: Path, final: Path) -> None:
    """Two renames for a study that is replaced; should the second fail, the old one is put back."""
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
