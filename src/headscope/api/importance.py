"""headscope.importance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.ablation import importance as ablation
from headscope.api.study_output import output_directory, write_study
from headscope.config.importance import ImportanceConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.attention_model import AttentionModel
from headscope.study.journal import NAME
from headscope.study.study import Study
from headscope.study.study_dir import read_existing_study


def importance(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: ImportanceConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Importance of every head for a task: exact ablation and faster estimates, with intervals and tests.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        Task and data; or the data, with the task as `task=`.
    config, reading, run
        Options; see `ImportanceConfig`, `Reading` and `Run`. With `run.out` (or `out=`) the study is written with its
        figures and page, or added to the study of the same model in that directory.
    **options
        Fields of these configs, instead of or in addition to them: `by=`, `kind=`, `heads=`, `race=` …

    Returns
    -------
    Study
        With the rows and tables of docs/study.md; `record["importance"]` describes the run. A study that was added to
        is returned as a whole.

    Examples
    --------
    >>> study = headscope.importance(
    ...     "minilm", task="stsb", data="stsb_dev.tsv", by="ablation,gradient"
    ... )  # doctest: +SKIP
    """
    slots = (ImportanceConfig, config), (TaskData, data), (Reading, reading), (Run, run)
    configs = fill("importance", options, *slots)
    run = configs[-1]
    existing = read_existing_study(run.out, "importance", overwrite=run.overwrite)
    overwrite = run.overwrite or existing is not None
    with output_directory(run, overwrite=overwrite, kept=[NAME]) as directory:
        study = ablation.importance(model, *configs, directory=directory, existing=existing)
        write_study(study, directory, run)
        if directory is not None:
            # Last: a run that is killed while it draws need not be repeated.
            (directory / NAME).unlink(missing_ok=True)
    return study
