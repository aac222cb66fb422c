"""headscope.analyze."""

from __future__ import annotations

from headscope.analysis import analyze as analysis
from headscope.api.configured import ModelSource, on_texts
from headscope.api.study_output import output_directory, write_study
from headscope.config.analyze import AnalyzeConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.study.study import Study


@on_texts
def analyze(
    model: ModelSource, data: TextData, config: AnalyzeConfig, reading: Reading, run: Run
) -> Study:
    """Statistics, roles and clusters of every head over texts, with 95 % intervals.

    Every statistic whose data is given is computed: those of plain texts always, relations with a treebank,
    antecedents with coreference, rare words with word frequencies.

    Returns
    -------
    Study
        `heads` has one row for each head and statistic, `tables` the other tables.

    Examples
    --------
    >>> study = headscope.analyze("minilm", ["The cat sat.", "It rained."])  # doctest: +SKIP
    >>> study = headscope.analyze("minilm", corpus="wiki.txt", out="study")  # doctest: +SKIP
    """
    with output_directory(run) as directory:
        study = analysis.analyze(model, config, data, reading, run)
        write_study(study, directory, run)
    return study
