"""Writing of figures and pages for the public functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headscope.config.shared import Run
from headscope.study.study import Study


def report_writer(run: Run) -> Callable[[Study, Path], None]:
    """A function that writes the figures and the page of a study into its directory, with progress."""

    def write(study: Study, folder: Path) -> None:
        from headscope.report.rendered_figures import telling
        from headscope.report.write import write_report

        run.log("drawing figures")
        with telling(lambda done, total: run.progress(done, total, "figures"), run.log):
            write_report(study, folder)

    return write
