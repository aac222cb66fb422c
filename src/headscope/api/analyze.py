"""headscope.analyze."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headscope.analysis import analyze as analysis
from headscope.api.study_output import output_directory, write_study
from headscope.config.analyze import AnalyzeConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study


def analyze(
    model: AttentionModel | str | Path,
    data: TextData | Iterable[str | tuple[str, str]] | None = None,
    config: AnalyzeConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Statistics, roles and clusters of every head over texts, with 95 % intervals.

    Every statistic whose data is given is computed: those of plain texts always, relations with a treebank,
    antecedents with coreference, rare words with word frequencies.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        A list of texts, or of pairs of texts; or a `TextData` with files.
    config, reading, run
        Options; see `AnalyzeConfig`, `Reading` and `Run`. With `run.out` (or `out=`) the study is written with its
        figures and page.
    **options
        Fields of these configs, instead of or in addition to them: `corpus=`, `statistics=`, `thresholds=` …

    Returns
    -------
    Study
        `heads` has one row for each head and statistic, `tables` the other tables.

    Examples
    --------
    >>> study = headscope.analyze("minilm", ["The cat sat.", "It rained."])  # doctest: +SKIP
    >>> study = headscope.analyze("minilm", corpus="wiki.txt", out="study")  # doctest: +SKIP
    """
    slots = (AnalyzeConfig, config), (TextData, data), (Reading, reading), (Run, run)
    configs = fill("analyze", options, *slots)
    run = configs[-1]
    with output_directory(run) as directory:
        study = analysis.analyze(model, *configs)
        write_study(study, directory, run)
    return study
