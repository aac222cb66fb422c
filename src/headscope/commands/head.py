"""headscope head: all results about one head."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, argument, showing_progress
from headscope.config.head import HeadConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData

Source = Annotated[
    str, argument("STUDY|MODEL", "Directory of a study, or a model, which is then analysed first")
]
Name = Annotated[str, argument("HEAD", "Head as LAYER.HEAD, both counted from 0: 3.2, cross.3.2")]


@command()
def head(
    source: Source,
    name: Name,
    data: TextData,
    config: HeadConfig,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Show everything known about one head: roles, relations, importance, examples, ranks."""
    import headscope

    with showing_progress(f"heads of {source}", run) as run:
        summary = headscope.head(source, name, data, config, run=run)
    if as_json:
        typer.echo(summary.to_json())
    else:
        for line in summary.lines():
            typer.echo(line)
