"""What all results have in common: they write themselves with the one writer of the report package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


class Result:
    """Base class of studies, comparisons, probes and joined reports."""

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write tables, run record, figures and page, complete or not at all: `headscope.write`."""
        # By name and only when used: the report package is built on the packages of the results.
        written: Path = import_module("headscope.report.write").write(
            self, out, overwrite=overwrite
        )
        return written
