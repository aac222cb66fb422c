"""headscope fronts: several searches on the same axes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import argument, showing_progress
from headscope.config.fronts import FrontsConfig
from headscope.config.shared import Run


@command()
def fronts(
    studies: Annotated[
        list[Path], argument("STUDY", "Directories written by headscope prune and headscope gate")
    ],
    config: FrontsConfig,
    run: Run,
) -> None:
    """Compare searches and gates of one model and task, and the roles of the heads they keep."""
    import headscope

    with showing_progress("drawing figures", run) as run:
        headscope.fronts(studies, config, run=run)
    typer.echo(run.out)
