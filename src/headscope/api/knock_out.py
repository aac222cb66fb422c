"""headscope.knock_out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headscope.ablation import knock_out as ablation
from headscope.api.study_output import output_directory, write_study
from headscope.config.knock_out import KnockOutConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study
from headscope.study.study_dir import read_existing_study


def knock_out(
    model: AttentionModel | str | Path,
    data: TextData | Iterable[str | tuple[str, str]] | None = None,
    config: KnockOutConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Effect of every head's attention on the states of tokens: value zeroing and knock-outs, averaged over texts.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        A list of texts, or of pairs of texts; or a `TextData` with files. The first 16 by default (`limit=`): a text
        is run once for every head and token.
    config, reading, run
        Options; see `KnockOutConfig`, `Reading` and `Run`. With `run.out` (or `out=`) the study is written with its
        figures and page, or added to the study of the same model in that directory.
    **options
        Fields of these configs, instead of or in addition to them: `to=`, `statistics=`, `corpus=` …

    Returns
    -------
    Study
        With rows in `heads`. A study that was added to is returned as a whole.
    """
    slots = (KnockOutConfig, config), (TextData, data), (Reading, reading), (Run, run)
    configs = fill("knock-out", options, *slots)
    run = configs[-1]
    existing = read_existing_study(run.out, "knock_out", overwrite=run.overwrite)
    with output_directory(run, overwrite=run.overwrite or existing is not None) as directory:
        study = ablation.knock_out(model, *configs, existing=existing)
        write_study(study, directory, run)
    return study
