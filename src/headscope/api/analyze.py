"""headscope.analyze."""

from __future__ import annotations

from pathlib import Path

from headscope.analysis import analyze as analysis
from headscope.analysis.checkpoint_analysis import analyze_checkpoints
from headscope.api.check_paths import TRAINED_MODEL
from headscope.api.configured import ModelSource, on_texts
from headscope.api.study_output import output_directory, write_study
from headscope.config.analyze import AnalyzeConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError
from headscope.study.study import Study


@on_texts
def analyze(
    model: ModelSource, data: TextData, config: AnalyzeConfig, reading: Reading, run: Run
) -> Study:
    """Statistics, roles and clusters of every head over texts, with 95 % intervals.

    Every statistic whose data is given is computed: those of plain texts always, relations with a treebank,
    antecedents with coreference, rare words with word frequencies.

    With `checkpoints=True`, `model` is the directory of a training by `pretrain` or `finetune` with `checkpoints=N`.
    Every checkpoint is analysed. The tables `film` and `film_roles` of the result have the statistics and the roles of
    the heads at every step; the rest is the study of the last checkpoint.

    Returns
    -------
    Study
        `heads` has one row for each head and statistic, `tables` the other tables.

    Examples
    --------
    >>> study = headscope.analyze("minilm", ["The cat sat.", "It rained."])  # doctest: +SKIP
    >>> study = headscope.analyze("minilm", corpus="wiki.txt", out="study")  # doctest: +SKIP
    """
    if config.checkpoints:
        if not isinstance(model, str | Path):
            what = f"must be a directory with `checkpoints=True`, got {describe_value(model)}"
            raise HeadscopeError(what, where="model", expected=TRAINED_MODEL)
        return analyze_checkpoints(
            model, config, data, reading, run, lambda study, folder: write_study(study, folder, run)
        )
    with output_directory(run) as directory:
        study = analysis.analyze(model, config, data, reading, run)
        write_study(study, directory, run)
    return study
