"""headscope.probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.analysis import probe as analysis
from headscope.analysis.probe import Probes
from headscope.api.study_output import output_directory
from headscope.config.option import fill
from headscope.config.probe import ProbeConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.model.attention_model import AttentionModel
from headscope.report.write import write_into
from headscope.study.inputs import Files


def probe(
    model: AttentionModel | str | Path,
    data: TextData | Files | None = None,
    config: ProbeConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> Probes:
    """Dependency parsing from the attention of one model, and baselines.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        CoNLL-U files to train on; or a `TextData` with a treebank.
    config, run
        Options; see `ProbeConfig` and `Run`. With `run.out` (or `out=`) the tables are written.
    **options
        Fields of these configs, instead of or in addition to them: `test=`, `vectors=`, `epochs=` …

    Returns
    -------
    Probes
        `table` has the unlabelled attachment score of every probe, `weights` the weight of every head.

    Raises
    ------
    HeadscopeError
        If a file is not CoNLL-U, or a head or an option is not usable.

    Examples
    --------
    >>> probes = headscope.probe("minilm", "train.conllu", test="test.conllu")  # doctest: +SKIP
    >>> probes.table  # doctest: +SKIP
    """
    if data is not None and not isinstance(data, TextData):
        options["treebank"], data = data, None
    slots = (ProbeConfig, config), (TextData, data), (Reading, None), (Run, run)
    configs = fill("probe", options, *slots)
    with output_directory(configs[-1]) as directory:
        probes = analysis.probe(model, *configs)
        if directory is not None:
            write_into(probes, directory)
    return probes
