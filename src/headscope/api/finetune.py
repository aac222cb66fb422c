"""headscope.finetune."""

from __future__ import annotations

from headscope.api.configured import ModelSource, on_task
from headscope.config.finetune import FinetuneConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.training import finetune as training
from headscope.training.result import TrainingResult


@on_task
def finetune(
    model: ModelSource, data: TaskData, config: FinetuneConfig, reading: Reading, run: Run
) -> TrainingResult:
    """Train a model on a task and keep its best epoch.

    The data is a directory with train and dev files. A loaded model is not changed: a copy of it is trained. With `out`
    the model is written and a stopped training can be resumed; without `out` the model is only returned.

    Returns
    -------
    TrainingResult
        The trained model (`model`), its losses and metrics (`tables`, `record`), and `write(out)`.

    Examples
    --------
    >>> result = headscope.finetune("minilm", "glue", task="mnli", epochs=1, out="minilm-mnli")  # doctest: +SKIP
    >>> result.tables["epochs"]  # doctest: +SKIP
    """
    return training.finetune(model, config, data, reading, run)
