"""headscope.compare_masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.api._write import report_writer
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.learning import compare_masks as learning
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study


def compare_masks(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: CompareMasksConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Study:
    """What a task loses under each mask: applied, after a repair, and trained under it from the start.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. A loaded model is not changed: copies are trained.
    data
        Task and data; or the data, with the task as `task=`.
    config, reading, run
        Options; see `CompareMasksConfig`, `Reading` and `Run`. Without `out` nothing is written.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Study
        Its tables are `mask_table` (one row per mode and mask) and `mask_runs` (one row per seed).

    Notes
    -----
    Every change is relative to the same training without a mask, with the same seed, on the same examples.

    Examples
    --------
    headscope.compare_masks("minilm", task="stsb", data="stsb_dev.tsv", mask=["star"], out="masks")
    """
    own, task_data, texts, how = fill(
        "compare_masks",
        options,
        (CompareMasksConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    return learning.compare_masks(model, own, task_data, texts, how, report_writer(how))
