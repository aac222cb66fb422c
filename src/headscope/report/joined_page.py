"""The report of several studies, as a file: one self-contained page, whole or not there."""

from __future__ import annotations

from pathlib import Path

from headscope.analysis.join import Joined
from headscope.atomic_dir import check_page
from headscope.errors import HeadscopeError, reason
from headscope.report.page import render_joined

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
        raise HeadscopeError(
            f"cannot be written: {reason(cause)}", where=out, mend="Choose another `out`"
        ) from cause
    return final


Joined.publish = staticmethod(write_joined)
