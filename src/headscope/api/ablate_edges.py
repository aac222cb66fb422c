"""headscope.ablate_edges."""

from __future__ import annotations

from headscope.ablation import knock_out as ablation
from headscope.api.configured import ModelSource, on_texts
from headscope.api.study_output import study_to_add_to, write_study
from headscope.config.ablate_edges import AblateEdgesConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.study.study import Study


@on_texts
def ablate_edges(
    model: ModelSource, data: TextData, config: AblateEdgesConfig, reading: Reading, run: Run
) -> Study:
    """Effect of every head's attention on the states of tokens: value zeroing and knock-outs, averaged over texts.

    Each text takes one forward pass per head and token, so by default only the first 16 texts are used (`limit=`). With
    `out` the study is written with its figures and page. If `out` is a study of the same model, the results are added.

    Returns
    -------
    Study
        Its results are rows of `heads`. If an existing study was extended, the result has all of its tables.

    Examples
    --------
    >>> study = headscope.ablate_edges("minilm", ["The cat sat."])
    >>> "value-zeroing" in set(study.heads["statistic"])
    True
    """
    with study_to_add_to(config, run) as (existing, directory):
        study = ablation.knock_out(model, config, data, reading, run, existing=existing)
        write_study(study, directory, run)
    return study
