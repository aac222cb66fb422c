"""write, the verb: a study in memory to a study directory with figures and page."""

from __future__ import annotations

from pathlib import Path

from headscope.drafts import drafted
from headscope.report.write import write_report
from headscope.study.directory import write_tables
from headscope.study.study import Study


def write(study: Study, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the study directory: tables, run.json, figures, index.html. Whole or not at all."""
    with drafted(out, overwrite=overwrite) as folder:
        fill(study, folder)
    return Path(out)


def fill(study: Study, folder: Path) -> None:
    """Everything of a study into a folder that is being drafted."""
    write_tables(study, folder)
    write_report(study, folder)
