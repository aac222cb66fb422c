"""The study directory: whole or not there.

While a run is under way, `OUT.partial` beside OUT holds what there is so far; at the end it takes OUT's name.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from headscope.errors import HeadscopeError
from headscope.study.study import Study

OWNER = ".owner"  # in OUT.partial: the process that is writing it


@contextmanager
def drafted(out: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write a study into; becomes `out` on leaving, and is gone after an exception."""
    final = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow a link that is to be replaced
    partial = final.with_name(final.name + ".partial")
    _check(final, partial, overwrite)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / OWNER).write_text(str(os.getpid()))
        yield partial
        (partial / OWNER).unlink()
        _take_place(partial, final)
    except OSError as cause:
        raise HeadscopeError(
            f"cannot be written: {cause.strerror or cause}",
            where=out,
            expected="a place with room that may be written to",
            mend="Free some space, or choose another --out" if cause.errno == errno.ENOSPC else "Choose another --out",
        ) from cause
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check(final: Path, partial: Path, overwrite: bool) -> None:
    if final.exists() and not final.is_dir():
        raise HeadscopeError("a file of this name exists", where=final, expected="a new directory")
    if final.exists() and not (final / "run.json").exists() and any(final.iterdir()):
        raise HeadscopeError("the directory is not a study and not empty", where=final, mend="Choose another --out")
    if (final / "run.json").exists() and not overwrite:
        raise HeadscopeError("a study is already there", where=final, mend="Add --overwrite, or choose another --out")
    owner = partial / OWNER
    if owner.is_file() and _is_running(owner.read_text()):
        raise HeadscopeError(f"another run (process {owner.read_text()}) is writing it", where=final, mend="Wait for it")


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _take_place(partial: Path, final: Path) -> None:
    if not final.exists():
        partial.rename(final)
        return
    old = final.with_name(final.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    final.rename(old)
    partial.rename(final)
    shutil.rmtree(old)


def write_tables(study: Study, folder: Path) -> None:
    """heads.csv, heads.parquet, maps.npz and run.json."""
    # Ten digits in the csv: more than any statistic carries, few enough to read. The parquet has them all.
    study.heads.to_csv(folder / "heads.csv", index=False, float_format="%.10g", lineterminator="\n")
    study.heads.to_parquet(folder / "heads.parquet", index=False)
    np.savez_compressed(folder / "maps.npz", **study.maps)  # type: ignore[arg-type]
    (folder / "run.json").write_text(json.dumps(study.record, indent=2, ensure_ascii=False) + "\n", "utf-8")
