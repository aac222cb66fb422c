"""headscope.finetune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.config.finetune import FinetuneConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.attention_model import AttentionModel
from headscope.training import finetune as training
from headscope.training.result import TrainingResult


def finetune(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: FinetuneConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model on a task and keep its best epoch.

    Parameters
    ----------
    model
        A loaded model, of which a copy is trained; or the name, directory or hub id of one.
    data
        Task and data, a directory with train and dev files; or the data, with the task as `task=`.
    config, reading, run
        Options; see `FinetuneConfig`, `Reading` and `Run`. With `out` the model is written and the training can be
        resumed; without it the model is only returned.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    TrainingResult
        The trained model (`model`), its losses and metrics (`tables`, `record`), and `write(out)`.

    Examples
    --------
    >>> result = headscope.finetune("minilm", "glue", task="mnli", epochs=1, out="minilm-mnli")  # doctest: +SKIP
    >>> result.tables["epochs"]  # doctest: +SKIP
    """
    configs = fill(
        "finetune",
        options,
        (FinetuneConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    return training.finetune(model, *configs)
