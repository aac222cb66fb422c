"""Where the page of `look` is written; checked without importing torch."""

from __future__ import annotations

import shlex
from pathlib import Path

from headscope.errors import HeadscopeError

OTHER_FILES = (
    ".csv",
    ".gif",
    ".ipynb",
    ".jpg",
    ".jpeg",
    ".json",
    ".md",
    ".npz",
    ".pdf",
    ".png",
    ".svg",
    ".tsv",
    ".txt",
)


def page_path(path: str | Path) -> Path:
    """Where a page goes: a name without an ending gets .html, as no browser opens it otherwise."""
    place = Path(path)
    if place.suffix.lower() in (".html", ".htm") or place.is_dir():
        return place
    if place.suffix.lower() in OTHER_FILES:
        raise HeadscopeError(
            f'"{place.name}" is no page', where=path, expected="a name that ends in .html"
        )
    return place.with_name(f"{place.name}.html")


def check_page_path(path: Path) -> None:
    """Refuse a path that no page can have, before work is done for it."""
    if path.is_dir():
        raise HeadscopeError(
            "this is a folder", where=path, expected="the name of a file, such as look.html"
        )
    there = next(folder for folder in path.parents if folder.exists())
    if not there.is_dir():
        raise HeadscopeError(
            f'"{there}" is a file, not a folder', where=path, fix="Choose another path"
        )
    if there != path.parent:
        fix = f"Check the path, or make the directory: mkdir -p {shlex.quote(str(path.parent))}"
        raise HeadscopeError(
            f"cannot be written: there is no directory {path.parent}", where=path, fix=fix
        )
