"""headscope.importance."""

from __future__ import annotations

from headscope.ablation import importance as ablation
from headscope.api.configured import ModelSource, on_task
from headscope.api.study_output import study_to_add_to, write_study
from headscope.config.importance import ImportanceConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.study.journal import NAME as JOURNAL
from headscope.study.study import Study


@on_task
def importance(
    model: ModelSource, data: TaskData, config: ImportanceConfig, reading: Reading, run: Run
) -> Study:
    """Importance of every head for a task: exact ablation and faster estimates, with intervals and tests.

    With `out` the study is written with its figures and page. If `out` is a study of the same model, the results are
    added.

    Returns
    -------
    Study
        With the rows and tables of docs/reference/tables.md; `record["importance"]` describes the run. If an
        existing study was extended, the result has all of its tables.

    Examples
    --------
    >>> study = headscope.importance(
    ...     "minilm", task="stsb", data="stsb_dev.tsv", by="ablation,gradient"
    ... )  # doctest: +SKIP
    """
    with study_to_add_to(config, run) as (existing, directory):
        study = ablation.importance(
            model, config, data, reading, run, directory=directory, existing=existing
        )
        write_study(study, directory, run)
        if directory is not None:
            # The journal is deleted last, so that a run that is killed while figures are drawn can be resumed.
            (directory / JOURNAL).unlink(missing_ok=True)
    return study
