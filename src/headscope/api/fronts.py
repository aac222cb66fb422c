"""headscope.fronts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.api.study_output import output_directory, write_study
from headscope.config.fronts import FrontsConfig
from headscope.config.option import fill
from headscope.config.shared import Run
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError
from headscope.pruning import compare_fronts
from headscope.study.study import Study


def fronts(
    studies: Sequence[str | Path],
    config: FrontsConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Compare several searches and gates of one model and task, and the roles of the heads they keep.

    Parameters
    ----------
    studies
        Directories that `headscope.prune` or `headscope.gate` wrote.
    config, run
        Options; see `FrontsConfig` and `Run`. If `run.out` is set, the study is written there with its page.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Study
        With the table `fronts`, and the table `survivors` if `roles` is given.
    """
    config, run = fill("fronts", options, (FrontsConfig, config), (Run, run))
    for study in studies if isinstance(studies, list | tuple) else [studies]:
        if not isinstance(study, str | Path):
            what = f"must be directories of prune or gate, got {describe_value(study)}"
            raise HeadscopeError(what, where="studies")
    with output_directory(run) as directory:
        study = compare_fronts.fronts(studies, config, run)
        write_study(study, directory, run)
    return study
