"""headscope.search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.config.option import fill
from headscope.config.search import SearchConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.masks.open_model import check_loaded
from headscope.model.attention_model import AttentionModel
from headscope.pruning import search as searching
from headscope.pruning.search_result import SearchResult


def search(
    model: AttentionModel | str | Path,
    data: TaskData | str | Path | None = None,
    config: SearchConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> SearchResult:
    """Find the heads that a task can do without; nothing is cut.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    data
        Task and data; or the data, with the task as `task=`. Heads are selected on `select_on` and reported on
        `report_on`, by default two halves of the dev split.
    config, reading, run
        Options; see `SearchConfig`, `Reading` and `Run`. One of `heads`, `sparsity`, `keep_metric` and `speedup` is
        the target of the search.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    SearchResult
        `plan` (the heads to remove), `front` (what removing more and more heads costs), `tried` and `study`.

    Examples
    --------
    >>> headscope.search("minilm", task="stsb", data="stsb_dev.tsv", keep_metric=0.99)  # doctest: +SKIP
    """
    configs = fill(
        "search",
        options,
        (SearchConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    if isinstance(model, AttentionModel):
        check_loaded(configs[2], configs[3])
    return searching.search(model, *configs)
