"""headscope.pretrain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headscope.config.option import fill
from headscope.config.pretrain import PretrainConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.training import pretrain as training
from headscope.training.result import TrainingResult


def pretrain(
    data: TextData | Iterable[str] | None = None,
    config: PretrainConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a new encoder to predict masked tokens of a text corpus.

    Parameters
    ----------
    data
        A list of texts; or a `TextData` with files.
    config, reading, run
        Options; see `PretrainConfig`, `Reading` and `Run`. With `out` the model is written and the training can be
        resumed; without it the model is only returned.
    **options
        Fields of these configs, instead of or in addition to them: `corpus=`, `layers=`, `steps=` …

    Returns
    -------
    TrainingResult
        The trained model (`model`), its losses and metrics (`tables`, `record`), and `write(out)`.

    Examples
    --------
    >>> result = headscope.pretrain(corpus="wiki.txt.gz", layers=2, vocabulary=8000, out="small-bert")  # doctest: +SKIP
    >>> result.record["baseline"]  # doctest: +SKIP
    """
    slots = (PretrainConfig, config), (TextData, data), (Reading, reading), (Run, run)
    return training.pretrain(*fill("pretrain", options, *slots))
