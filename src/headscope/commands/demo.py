"""headscope demo: heads of a real model on a corpus and a treebank, their importance, and a page of one sentence."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import say
from headscope.config.command_line import command_line_of
from headscope.config.demo import DemoConfig
from headscope.config.serve import ServeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData


@command()
def demo(run: Run, data: TextData, config: DemoConfig) -> None:
    """Show what the 72 heads of a real model attend to, which syntactic relations they follow, and which matter."""
    import headscope

    out = run.out
    assert out is not None
    assert data.limit is not None
    headscope.demo(out, limit=data.limit, run=replace(run, log=say))
    say("to type other sentences and to switch heads off:")
    say(command_line_of(ServeConfig(study=[out]), arguments=("minilm",)))
    say("two pages to open in a browser:")
    typer.echo(
        f"{out / 'index.html'} shows what every head attends to, which heads follow syntactic relations, and which "
        "heads the model needs."
    )
    typer.echo(f"{out / 'look.html'} shows the attention of all 72 heads for one sentence.")
