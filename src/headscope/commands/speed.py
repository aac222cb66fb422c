"""headscope speed: time of a model by its number of heads, or of attention under a mask."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, showing_progress
from headscope.config.shared import Run
from headscope.config.speed import SpeedConfig


@command()
def speed(model: Model, config: SpeedConfig, run: Run, as_json: AsJson = False) -> None:
    """Time a model by its number of heads, or its attention with and without a mask."""
    import headscope

    name = model if config.mask is None else f"{model} under {config.mask}"
    with showing_progress(name, run) as run:
        result = headscope.speed(model, config, run=run)
    if as_json:
        print_json(result.record)
    else:
        for line in result.lines():
            typer.echo(line)
    if run.out is not None:
        typer.echo(run.out, err=as_json)
