"""write, the verb: a study in memory to a study directory with figures and page."""

from __future__ import annotations

from pathlib import Path

from headscope.atomic_dir import drafted
from headscope.report.write import write_report
from headscope.study.study import Study
from headscope.study.study_dir import write_tables


def write(study: Study, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the study directory: tables, run.json, figures, index.html. Whole or not at all."""
    with drafted(out, overwrite=overwrite) as folder:
        fill(study, folder)
    return Path(out)


def fill(study: Study, folder: Path) -> None:
    """Everything of a study into a folder that is being drafted."""
    write_tables(study, folder)
    write_report(study, folder)
