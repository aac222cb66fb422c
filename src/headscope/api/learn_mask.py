"""headscope.learn_mask."""

from __future__ import annotations

from headscope.api.configured import ModelSource, on_task
from headscope.api.study_output import report_writer
from headscope.config.learn_mask import LearnMaskConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import learn_mask as learning
from headscope.study.study import Study


@on_task
def learn_mask(
    model: ModelSource, data: TaskData, config: LearnMaskConfig, reading: Reading, run: Run
) -> Study:
    """Learn which positions need to attend to which, by training a mask, with or without the weights.

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
    >>> study = headscope.learn_mask(
    ...     "minilm-mnli", task="mnli", data="glue", sparsity=0.9, out="masks"
    ... )  # doctest: +SKIP
    """
    return learning.learn_mask(model, config, data, reading, run, report_writer(run))
