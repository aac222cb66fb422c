"""headscope.compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.analysis import compare as comparing
from headscope.analysis.compare import Comparison
from headscope.api.study_output import output_directory, write_study
from headscope.config.compare import CompareConfig
from headscope.config.option import fill
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.study.study import Study


def compare(
    studies: Sequence[Study | str | Path],
    data: TextData | None = None,
    config: CompareConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> Comparison:
    """Compare the heads of two or more models: layers, smoothness, roles, matched heads.

    Parameters
    ----------
    studies
        Studies or their directories; of one lens, with a statistic in common.
    data
        Texts on which the maps of two models are compared; requires `models`.
    config, run
        Options; see `CompareConfig` and `Run`. With `run.out` (or `out=`) the comparison is written with its page.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Comparison
        `tables` by name; `write(out)` writes it with figures and page.

    Examples
    --------
    >>> headscope.compare(["before", "after"]).write("comparison")  # doctest: +SKIP
    """
    slots = (CompareConfig, config), (TextData, data), (Run, run)
    config, data, run = fill("compare", options, *slots)
    with output_directory(run) as directory:
        comparison = comparing.compare(studies, config, data, run)
        write_study(comparison, directory, run)
    return comparison
