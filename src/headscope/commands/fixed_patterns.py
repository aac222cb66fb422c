"""headscope fixed-patterns: replace the attention of heads by fixed patterns."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.command_line import command_line_of
from headscope.config.evaluate import EvaluateConfig, on_report_split
from headscope.config.fixed_patterns import FixedPatternsConfig
from headscope.config.shared import Reading, Run, TaskData


@command()
def fixed_patterns(
    model: Model,
    data: TaskData,
    config: FixedPatternsConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Replace the attention of heads by fixed patterns, measure the loss, and save the smaller model."""
    import headscope
    from headscope.model.model_card import times_as_fast

    with showing_progress(model, run) as run:
        result = headscope.fixed_patterns(model, config=config, data=data, reading=reading, run=run)
    if as_json:
        print_json(result.record)
        return
    before, after = result.record["speed"]
    parameters = " to ".join(f"{size['parameters'] / 1e6:.2f}" for size in (before, after))
    speed = times_as_fast(after["ratio"], after["low"], after["high"])
    say(
        f"{len(result.patterns)} of {before['heads']} heads fixed, {parameters} million parameters, "
        f"{speed} ({result.record['timed']})"
    )
    evaluation = EvaluateConfig(config.batch_size)
    say(f"check it: {command_line_of(evaluation, on_report_split(data), arguments=(run.out,))}")
    typer.echo(run.out)
