"""headscope fronts: several searches on the same axes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.config.fronts import FrontsConfig
from headscope.config.shared import Run
from headscope.progress import progress


@command()
def fronts(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY",
            help="Directories written by headscope prune and headscope gate",
            show_default=False,
        ),
    ],
    config: FrontsConfig,
    run: Run,
) -> None:
    """Compare searches and gates of one model and task, and the roles of the heads they keep."""
    import headscope

    with progress("drawing figures") as update:
        headscope.fronts(studies, config, run=replace(run, progress=update))
    typer.echo(run.out)
