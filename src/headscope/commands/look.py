"""headscope look: the attention maps of all heads for one input."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model
from headscope.config.look import LookConfig
from headscope.config.shared import Reading, Run

EXAMPLES = """
[bold]Examples[/bold]

headscope look minilm "The cat sat on the mat." --out cat.html

headscope look minilm "The cat sat on the mat." --lens raw,norm,gradient,rollout --out cat.html

headscope look opus-mt-en-fr "The cat sat on the mat." "Le chat s'assit sur le tapis." --out cat.html

In Python: model.look(text).save("cat.html")
"""
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="Text that the model reads", show_default=False)
]
Second = Annotated[
    str | None,
    typer.Argument(
        metavar="SECOND", help="A second text, or the target of a translation", show_default=False
    ),
]


@command(EXAMPLES, group="Look")
def look(
    model: Model,
    text: Text,
    config: LookConfig,
    reading: Reading,
    run: Run,
    second: Second = None,
) -> None:
    """Draw what every head attends to in one text, as an interactive page."""
    import headscope
    from headscope.report.look.view import page_path

    headscope.look(model, text, second, config, reading=reading, run=run)
    typer.echo(page_path(str(run.out)))
