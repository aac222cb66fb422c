"""headscope look: the attention maps of all heads for one input."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, argument
from headscope.config.look import LookConfig
from headscope.config.shared import Reading, Run

Text = Annotated[str, argument("TEXT", "Text that the model reads")]
Second = Annotated[
    str | None, argument("SECOND", "Second text of a pair; for a translation model the target")
]


@command()
def look(
    model: Model,
    text: Text,
    config: LookConfig,
    reading: Reading,
    run: Run,
    second: Second = None,
) -> None:
    """Draw the attention of every head on one text, as an interactive page."""
    import headscope
    from headscope.report.page_file import page_path

    headscope.look(model, text, second, config, reading=reading, run=run)
    typer.echo(page_path(str(run.out)))
