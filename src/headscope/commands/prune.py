"""headscope prune: remove heads and save a smaller model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.command_line import command_line_of
from headscope.config.evaluate import EvaluateConfig, on_report_split
from headscope.config.prune import PruneConfig
from headscope.config.shared import Reading, Run, TaskData

if TYPE_CHECKING:
    from headscope.pruning.prune import PruneResult


@command()
def prune(
    model: Model,
    config: PruneConfig,
    data: TaskData | None,
    reading: Reading,
    run: Run,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show the plan, the sizes and the examples to measure on; write nothing",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prune attention heads and save a smaller model: heads by name, or those that a task does not need."""
    import headscope

    with showing_progress(model, run) as run:
        if dry_run:
            plan = headscope.preview_prune(
                model, config=config, data=data, reading=reading, run=run
            )
            if as_json:
                print_json(plan.record)
            else:
                typer.echo("\n".join(plan.lines()))
            return
        result = headscope.prune(model, config=config, data=data, reading=reading, run=run)
    if as_json:
        print_json(result.record)
        return
    say(_summary(result))
    if data is not None and config.form != "onnx":
        evaluation = EvaluateConfig(config.batch_size)
        say(f"check it: {command_line_of(evaluation, on_report_split(data), arguments=(run.out,))}")
    typer.echo(run.out)


def _summary(result: PruneResult) -> str:
    """Heads, size and speed before and after."""
    from headscope.model.model_card import times_as_fast

    before, after = result.record["speed"]
    heads = f"{before['heads']} to {after['heads']} heads"
    if result.form == "plain":
        return f"{heads}; this form keeps the size and the speed of the whole model"
    parameters = " to ".join(f"{size['parameters'] / 1e6:.2f}" for size in (before, after))
    speed = times_as_fast(after["ratio"], after["low"], after["high"])
    return f"{heads}, {parameters} million parameters, {speed} ({result.record['timed']})"
