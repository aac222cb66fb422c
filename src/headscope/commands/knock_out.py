"""headscope knock-out: the effect of every head's attention, measured by removing parts of it."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, note_few_texts
from headscope.config.knock_out import KnockOutConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.progress import progress


@command()
def knock_out(
    model: Model, data: TextData, config: KnockOutConfig, reading: Reading, run: Run
) -> None:
    """Remove values and edges of attention, head by head, and measure how far the states of tokens turn."""
    import headscope

    assert run.out is not None
    with progress(model) as update:
        study = headscope.knock_out(
            model, data, config, reading=reading, run=replace(run, progress=update)
        )
    note_few_texts(study)
    typer.echo(run.out / "index.html")
