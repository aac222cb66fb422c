"""headscope speed: time of a model by its number of heads, or of attention under a mask."""

from __future__ import annotations

import json

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, showing_progress
from headscope.config.shared import Run
from headscope.config.speed import SpeedConfig


@command()
def speed(model: Model, config: SpeedConfig, run: Run, as_json: AsJson = False) -> None:
    """Time a model by its number of heads, and the most that pruning can gain; or attention under a mask."""
    import headscope

    name = model if config.mask is None else f"{model} under {config.mask}"
    with showing_progress(name, run) as run:
        result = headscope.speed(model, config, run=run)
    if as_json:
        typer.echo(json.dumps(result.record))
    else:
        for line in result.lines():
            typer.echo(line)
    if run.out is not None:
        typer.echo(run.out, err=as_json)
