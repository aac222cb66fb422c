"""Files of single pages: their names, checks before work is done for them, and writing, whole or not at all."""

from __future__ import annotations

import secrets
import shlex
from contextlib import suppress
from pathlib import Path

from headscope.atomic_dir import OTHER_FILES, PAGES, REPLACE
from headscope.errors import HeadscopeError, reason


def page_path(path: str | Path) -> Path:
    """The path of a page: a name without an ending gets .html, since browsers do not open it otherwise."""
    page = Path(path)
    if page.suffix.lower() in PAGES or page.is_dir():
        return page
    if page.suffix.lower() in OTHER_FILES:
        what = f'the name of a page must end in .html, got "{page.name}"'
        raise HeadscopeError(what, where=path)
    return page.with_name(f"{page.name}.html")


def check_page_path(path: Path, *, overwrite: bool = True) -> None:
    """Refuse a path to which no page can be written, before work is done for it."""
    if path.is_dir():
        expected = "the name of a file, such as look.html"
        raise HeadscopeError("this is a folder", where=path, expected=expected)
    existing = next(folder for folder in path.parents if folder.exists())
    if not existing.is_dir():
        what = f'"{existing}" is a file, not a folder'
        raise HeadscopeError(what, where=path, fix="Choose another path")
    if path.exists() and not overwrite:
        raise HeadscopeError("a page is already there", where=path, fix=REPLACE)
    if existing != path.parent:
        what = f"cannot be written: there is no directory {path.parent}"
        fix = f"Check the path, or make the directory: mkdir -p {shlex.quote(str(path.parent))}"
        raise HeadscopeError(what, where=path, fix=fix)


def write_page(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it: a reader sees the old page or the new one, never half of it."""
    check_page_path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        raise HeadscopeError(
            f"the page cannot be written: {reason(error)}",
            where=path,
            expected=f"a folder one may write to, with {len(content) / 1e6:.1f} MB free",
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
