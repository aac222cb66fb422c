"""headscope.learn_mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.api._write import report_writer
from headscope.config.learn_mask import LearnMaskConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import learn_mask as learning
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study


def learn_mask(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: LearnMaskConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """Learn which positions need to attend to which: a mask, trained with the weights or alone.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. A loaded model is not changed: copies are trained.
    data
        Task and data; or the data, with the task as `task=`.
    config, reading, run
        Options; see `LearnMaskConfig`, `Reading` and `Run`. Without `out` nothing is written.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Study
        Its tables are `learned_masks` (one row per run) and `positions` (the open share by kind of position).
        `study.maps` holds the masks.

    Notes
    -----
    With `run.out`, every target has a directory with mask.npz, which every `mask=` takes (unless the mask is soft), and
    the trained model unless the weights were frozen.

    Examples
    --------
    headscope.learn_mask("minilm-mnli", task="mnli", data="glue", sparsity=0.9, out="masks")
    """
    own, task_data, texts, how = fill(
        "learn_mask",
        options,
        (LearnMaskConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    return learning.learn_mask(model, own, task_data, texts, how, report_writer(how))
