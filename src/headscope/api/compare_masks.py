"""headscope.compare_masks."""

from __future__ import annotations

from headscope.api.configured import ModelSource, on_task
from headscope.api.study_output import report_writer
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import compare_masks as learning
from headscope.study.study import Study


@on_task
def compare_masks(
    model: ModelSource, data: TaskData, config: CompareMasksConfig, reading: Reading, run: Run
) -> Study:
    """Cost of each mask on a task: applied to the model, after a repair, and with training under it from the start.

    Returns
    -------
    Study
        Its tables are `mask_table` (one row per mode and mask) and `mask_runs` (one row per seed).

    Notes
    -----
    Every change is relative to the same training without a mask, with the same seed, on the same examples.

    Examples
    --------
    >>> study = headscope.compare_masks(
    ...     "minilm", task="stsb", data="stsb_dev.tsv", mask=["star"], out="masks"
    ... )  # doctest: +SKIP
    """
    return learning.compare_masks(model, config, data, reading, run, report_writer(run))
