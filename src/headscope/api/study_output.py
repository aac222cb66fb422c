"""Writing of results: tables, figures and page in a temporary directory, which is renamed to `run.out` at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headscope.analysis.compare import Comparison
from headscope.api.check_paths import is_added_to
from headscope.atomic_dir import atomic_directory
from headscope.config.option import Config
from headscope.config.shared import Run
from headscope.report.rendered_figures import progress_callbacks, without_figures
from headscope.report.write import write_into, write_report
from headscope.study.study import Study


@contextmanager
def output_directory(
    run: Run, *, overwrite: bool | None = None, keep: Sequence[str] = ()
) -> Iterator[Path | None]:
    """A temporary directory that is renamed to `run.out` at the end; None if nothing is to be written.

    overwrite  whether an existing study is replaced; None: as `run` states
    keep       files that remain after an exception, so that the run can be resumed
    """
    if run.out is None:
        yield None
        return
    overwrite = run.overwrite if overwrite is None else overwrite
    with atomic_directory(run.out, overwrite=overwrite, resume=run.resume, keep=keep) as directory:
        yield directory


@contextmanager
def study_to_add_to(config: Config, run: Run) -> Iterator[tuple[Study | None, Path | None]]:
    """The existing study that a command adds its part to, if any, and the temporary directory to write both to."""
    assert config.output is not None
    part, overwrite = config.output.part, run.overwrite
    existing = None
    if run.out is not None and is_added_to(run.out, part, overwrite=overwrite):
        existing = Study(run.out)
    overwrite = overwrite or existing is not None
    with output_directory(run, overwrite=overwrite, keep=config.output.kept) as directory:
        yield existing, directory


def write_study(result: Study | Comparison, directory: Path | None, run: Run) -> None:
    """Write tables, run.json, figures and index.html; nothing without a directory."""
    if directory is not None:
        with drawing_figures(run):
            write_into(result, directory)


def report_writer(run: Run) -> Callable[[Study, Path], None]:
    """A function that writes the figures and the page of a study into its directory, with progress."""

    def write(study: Study, folder: Path) -> None:
        with drawing_figures(run):
            write_report(study, folder)

    return write


@contextmanager
def drawing_figures(run: Run) -> Iterator[None]:
    """Log that figures are drawn, and show progress; with `run.no_figures` none are drawn."""
    if run.no_figures:
        with without_figures():
            yield
        return
    run.log("drawing figures")
    with progress_callbacks(lambda done, total: run.progress(done, total, "figures"), run.log):
        yield
