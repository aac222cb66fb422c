"""The report of several studies, as a file: one self-contained page, whole or not there."""

from __future__ import annotations

from pathlib import Path

from headscope.errors import HeadscopeError, reason
from headscope.report.page import render_joined
from headscope.study.joining import Joined

MOST_BYTES = 7_500_000  # a report is to be sent: below 8 MB


def write_joined(joined: Joined, out: str | Path, overwrite: bool = False) -> Path:
    """Write the page; an earlier one is replaced only when asked for, and stays where writing fails."""
    check_page(out, overwrite=overwrite)
    final = Path(out)
    partial = final.with_name(f"{final.name}.partial")
    text = render_joined(joined, most=MOST_BYTES)
    try:
        partial.write_text(text, "utf-8")
        partial.replace(final)
    except OSError as cause:
        partial.unlink(missing_ok=True)
        raise HeadscopeError(f"cannot be written: {reason(cause)}", where=out, mend="Choose another --out") from cause
    return final


def check_page(out: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a place where no page can be written, before there is one."""
    place = Path(out)
    if place.suffix not in (".html", ".htm"):
        raise HeadscopeError(f'"{place.name}" is no page', where=out, expected="a name that ends in .html")
    if place.is_dir() or not place.parent.is_dir():
        what = "it is a directory" if place.is_dir() else f"there is no directory {place.parent}"
        raise HeadscopeError(f"cannot be written: {what}", where=out, mend="Choose another --out")
    if place.exists() and not overwrite:
        mend = "Add --overwrite (overwrite=True) to replace it, or choose another --out"
        raise HeadscopeError("a page is already there", where=out, mend=mend)


Joined.publish = staticmethod(write_joined)
