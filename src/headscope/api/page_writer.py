"""Figures and page of a study, with the progress of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.config.shared import Run

if TYPE_CHECKING:
    from headscope.study.study import Study


def page_writer(run: Run) -> Callable[[Study, Path], None]:
    """A function that writes the figures and the page of a study into its folder."""

    def write(study: Study, folder: Path) -> None:
        from headscope.report.plates import telling
        from headscope.report.write import write_report

        run.log("drawing figures")
        with telling(lambda done, total: run.progress(done, total, "figures"), run.log):
            write_report(study, folder)

    return write
