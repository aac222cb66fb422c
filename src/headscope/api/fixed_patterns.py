"""headscope.fixed_patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.api.write_model import make_and_write
from headscope.config.fixed_patterns import FixedPatternsConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.pruning import fix as fixing
from headscope.pruning.fix import FixedPatternsResult


def fixed_patterns(
    model: AttentionModel | str | Path,
    patterns: Any = None,
    config: FixedPatternsConfig | None = None,
    *,
    data: TaskData | str | Path | None = None,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> FixedPatternsResult:
    """Replace the attention of heads by fixed patterns: the heads lose their queries and keys.

    With patterns alone, the heads get these patterns and nothing is measured. With a task this is the command
    `headscope fixed-patterns`: it selects patterns and the order of heads, measures the loss on other examples, and
    writes the model and its study to `out`.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one. It is not changed.
    patterns
        Patterns by heads: `{"3.2": "previous", "4.*": "end"}`, a text (`"3.2=previous"`) or a file of such lines;
        with a task, by default the nearest pattern of each head. A `TaskData` may stand here instead.
    config, reading, run
        Options; see `FixedPatternsConfig`, `Reading` and `Run`. If `run.out` is None nothing is written.
    data
        Task and data; or the data, with the task as `task=`.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    FixedPatternsResult
        `model` (the smaller model), `patterns` (by fixed head), `study` (the measurements, or None), `record`,
        `tables` and `write(out)`.

    Examples
    --------
    >>> small = headscope.fixed_patterns("minilm", {"3.2": "previous"}).model  # doctest: +SKIP
    """
    if isinstance(patterns, TaskData):
        data, patterns = patterns, None
    if not options and all(value is None for value in (config, data, reading, run)):
        return fixing.fix_named(as_model(model), {} if patterns is None else patterns)
    if patterns is not None:
        options = options | {"patterns": patterns}
    configs = fill(
        "fixed_patterns",
        options,
        (FixedPatternsConfig, config),
        (TaskData, data),
        (Reading, reading),
        (Run, run),
    )
    return _fix(model, *configs)


def _fix(
    model: AttentionModel | str | Path,
    config: FixedPatternsConfig,
    data: TaskData,
    reading: Reading,
    run: Run,
) -> FixedPatternsResult:
    return make_and_write(
        run,
        fixing.TEMPORARY,
        lambda: fixing.read_inputs(model, config, data, reading, run),
        lambda inputs, folder: fixing.fix(inputs, config, data, reading, run, folder),
        fixing.delete_temporary,
    )
