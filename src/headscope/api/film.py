"""headscope.film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.analysis import checkpoint_analysis
from headscope.api.study_output import write_study
from headscope.config.film import FilmConfig
from headscope.config.option import fill
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.study.study import Study


def film(
    trained: str | Path,
    data: TextData | None = None,
    config: FilmConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Analyse every checkpoint of a training on the same texts.

    Parameters
    ----------
    trained
        The directory of a model that `pretrain` or `finetune` trained with `checkpoints=N`.
    data
        Files of text, of treebanks, or both.
    config, run
        Options; see `FilmConfig` and `Run`. With `out` the study is written with its figures and page, and a stopped
        run can be resumed.
    **options
        Fields of these configs, instead of or in addition to them: `corpus=`, `statistics=` …

    Returns
    -------
    Study
        The study of the last checkpoint. Its tables `film` and `film_roles` have the statistics and the roles of the
        heads at every step.

    Examples
    --------
    >>> study = headscope.film("small-bert", corpus="wiki.txt.gz", limit=500)  # doctest: +SKIP
    >>> study.tables["film"]  # doctest: +SKIP
    """
    slots = (FilmConfig, config), (TextData, data), (Run, run)
    film_config, texts, film_run = fill("film", options, *slots)

    def write(study: Study, folder: Path) -> None:
        write_study(study, folder, film_run)

    return checkpoint_analysis.film(trained, film_config, texts, film_run, write)
