"""Writing of results: a temporary directory that replaces `run.out` at the end, with tables, figures and page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headscope.atomic_dir import drafted
from headscope.config.shared import Run
from headscope.report.rendered_figures import telling
from headscope.report.write import write_into
from headscope.study.study import Study


@contextmanager
def output_directory(
    run: Run, *, overwrite: bool | None = None, kept: Sequence[str] = ()
) -> Iterator[Path | None]:
    """A temporary directory that is renamed to `run.out` at the end; None if nothing is to be written.

    overwrite  whether an existing study is replaced, if not as `run` states
    kept       files that remain after an exception, so that the run can be resumed
    """
    if run.out is None:
        yield None
        return
    overwrite = run.overwrite if overwrite is None else overwrite
    with drafted(run.out, overwrite=overwrite, resume=run.resume, kept=kept) as directory:
        yield directory


def write_study(study: Study, directory: Path | None, run: Run) -> None:
    """Write tables, run.json, figures and index.html; nothing without a directory."""
    if directory is None:
        return
    run.log("drawing figures")
    with telling(lambda done, total: run.progress(done, total, "figures"), run.log):
        write_into(study, directory)
