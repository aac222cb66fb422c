"""headscope.prune."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headscope.api.write_model import make_and_write
from headscope.config.option import fill
from headscope.config.prune import PruneConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.pruning import prune as pruning
from headscope.pruning.dry_run import DryRun
from headscope.pruning.prune import PruneResult

Layers = int | str | Iterable[int | str]


def prune(
    model: AttentionModel | str | Path,
    heads: Any = None,
    config: PruneConfig | None = None,
    *,
    layers: Layers | None = None,
    data: TaskData | str | Path | None = None,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> PruneResult:
    """Prune heads: heads by name, or those that a task can do without.

    With heads or layers alone, the heads are removed and nothing is measured. With any other option this is the command
    `headscope prune`: it searches for heads if there is a target, prunes, repairs, trains and measures the model, and
    writes the model, its plan and the study to `out`.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. It is not changed.
    heads
        Heads to remove: `"3.2,4.*"`, `[(3, 2), (4, 0)]` or `Head` objects; with a task also the number of heads to
        search for. A `TaskData` may stand here instead.
    config, reading, run
        Options; see `PruneConfig`, `Reading` and `Run`. If `run.out` is None nothing is written.
    layers
        Attention layers to remove entirely: 5, `[4, 5]`, `"5"` or `"encoder.3,cross.5"`. Only without a task.
    data
        Task and data; or the data, with the task as `task=`.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    PruneResult
        `model` (the smaller model), `plan` (the heads that were removed), `study` (the search, or None), `record`,
        `tables` and `write(out)`.

    Examples
    --------
    >>> small = headscope.prune("minilm", "3.2,4.*").model  # doctest: +SKIP
    >>> result = headscope.prune(
    ...     "minilm", task="stsb", data="stsb_dev.tsv", keep_metric=0.99, out="small"
    ... )  # doctest: +SKIP
    """
    if isinstance(heads, TaskData):
        data, heads = heads, None
    if not options and all(value is None for value in (config, data, reading, run)):
        return pruning.remove_heads(as_model(model), heads, layers)
    if layers is not None:
        raise TypeError(
            "prune() takes `layers` without other options; name their heads: heads='5.*'"
        )
    return _prune(model, *_fill(heads, config, data, reading, run, options))


def _prune(
    model: AttentionModel | str | Path,
    config: PruneConfig,
    data: TaskData | None,
    reading: Reading,
    run: Run,
) -> PruneResult:
    return make_and_write(
        run,
        pruning.TEMPORARY,
        lambda: pruning.open_unpruned(model, config, data, reading, run),
        lambda loaded, folder: pruning.prune(loaded, config, data, reading, run, folder),
        pruning.delete_temporary,
    )


def preview_prune(
    model: AttentionModel | str | Path,
    heads: Any = None,
    config: PruneConfig | None = None,
    *,
    data: TaskData | str | Path | None = None,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> DryRun:
    """Preview of `prune` with the same options: the plan, the size of the model, the files. Nothing is written.

    A search is carried out; repairs and training are not.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    heads
        The heads to remove, such as "3.2,4.*"; by default they are searched for.
    config, data, reading, run
        As of `prune`.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    DryRun
        `plan`, `sizes` (of the unpruned and the pruned model), `measured_on`, `files`, and `lines()` to print.

    Examples
    --------
    >>> preview = headscope.preview_prune("minilm", "0.1,3.*", out="small")
    >>> len(preview.plan.heads), [size.heads for size in preview.sizes]
    (13, [72, 59])
    """
    if isinstance(heads, TaskData):
        data, heads = heads, None
    configs = _fill(heads, config, data, reading, run, options)
    return pruning.preview(pruning.open_unpruned(model, *configs), *configs)


def _fill(
    heads: Any,
    config: PruneConfig | None,
    data: TaskData | str | Path | None,
    reading: Reading | None,
    run: Run | None,
    options: dict[str, Any],
) -> tuple[PruneConfig, TaskData | None, Reading, Run]:
    if heads is not None:
        options = options | {"heads": heads}
    slots = ((PruneConfig, config), (TaskData, data), (Reading, reading), (Run, run))
    made = fill("prune", options, *slots)
    return made[0], made[1], made[2], made[3]
