"""Make a smaller model and write it: model, study and page in one directory, complete or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from headscope.api.study_output import report_writer
from headscope.atomic_dir import atomic_directory, check_free
from headscope.config.shared import Run
from headscope.model.manifest import NAME as MANIFEST
from headscope.pruning.model_result import ModelResult

Inputs = TypeVar("Inputs")
Result = TypeVar("Result", bound=ModelResult)


def make_and_write(
    run: Run,
    temporary: Sequence[str],
    prepare: Callable[[], Inputs],
    make: Callable[[Inputs, Path], Result],
    clean: Callable[[Path], None],
) -> Result:
    """Make a model and write it to `run.out`. Without `run.out` nothing remains on disk.

    temporary  files of finished work, from which a stopped run is resumed
    prepare    reads the data and loads the model; called only if `run.out` can be written
    make       does the work, in a folder for temporary files
    clean      deletes these files once the model is written
    """
    if run.out is None:
        inputs = prepare()
        with TemporaryDirectory() as folder:
            return replace(make(inputs, Path(folder)), write_page=report_writer(run))
    directory: dict[str, Any] = {"overwrite": run.overwrite, "resume": run.resume}
    directory |= {"keep": temporary, "record": MANIFEST}
    check_free(run.out, **directory)
    inputs = prepare()
    with atomic_directory(run.out, **directory) as folder:
        result = replace(make(inputs, folder), write_page=report_writer(run))
        run.log("writing the model")
        result.write_into(folder)
        clean(folder)
    return result
