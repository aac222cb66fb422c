"""headscope.search."""

from __future__ import annotations

from headscope.api.configured import ModelSource, on_task
from headscope.config.search import SearchConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.masks.open_model import check_loaded
from headscope.model.attention_model import AttentionModel
from headscope.pruning import search as searching
from headscope.pruning.search_result import SearchResult


@on_task
def search(
    model: ModelSource, data: TaskData, config: SearchConfig, reading: Reading, run: Run
) -> SearchResult:
    """Find the heads that a task can do without. The model is not changed.

    The target is one of `remove`, `sparsity`, `keep_metric` (0.99 by default) and `speedup`. Heads are selected on
    `select_on` and reported on `report_on`, by default two halves of the dev split.

    Returns
    -------
    SearchResult
        `plan` (the heads to remove), `front` (the cost by number of removed heads), `tried` and `study`.

    Examples
    --------
    >>> headscope.search("minilm", task="stsb", data="stsb_dev.tsv", keep_metric=0.99)  # doctest: +SKIP
    """
    if isinstance(model, AttentionModel):
        check_loaded(reading, run)
    return searching.search(model, config, data, reading, run)
