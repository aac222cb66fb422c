"""headscope evaluate: metrics and loss of a model on a task."""

from __future__ import annotations

import typer

from headscope.commands._flags import to_flags
from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.evaluate import EvaluateConfig
from headscope.config.shared import Reading, Run, TaskData


@command()
def evaluate(
    model: Model,
    data: TaskData,
    config: EvaluateConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on a task: metrics and loss with intervals."""
    import headscope
    from headscope.report.run_facts import ENOUGH_TEXTS

    with showing_progress(model, run) as run:
        result = headscope.evaluate(model, data, config, reading=reading, run=run)
    pooling = result["pooling"]
    if pooling is not None and pooling["stated_by"] is not None:
        pooling["stated_by"] = to_flags(pooling["stated_by"])
    if as_json:
        print_json(result.record)
        return
    for name, metric in result["metrics"].items():
        if metric["value"] is None:
            typer.echo(f"{name:12} undefined on these examples")
        else:
            interval = (
                "" if metric["low"] is None else f"  [{metric['low']:.4f}, {metric['high']:.4f}]"
            )
            typer.echo(f"{name:12} {metric['value']:.4f}{interval}")
    of_all = f" of {result['available']:,}" if result["count"] < result["available"] else ""
    typer.echo(f"{'examples':12} {result['count']:,}{of_all}")
    if pooling is not None:
        stated_by = pooling["stated_by"] or "the default: no file states it"
        typer.echo(f"{'pooling':12} {pooling['pooling'] or 'mean'} ({stated_by})")
    if result["count"] < ENOUGH_TEXTS:
        say(
            f"note: only {result['count']} examples: the intervals are too narrow. Take {ENOUGH_TEXTS} or more"
        )
