"""headscope film: heads at every checkpoint of a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import note_few_texts
from headscope.config.film import FilmConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.progress import progress

Trained = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="Model that pretrain or finetune trained with --checkpoints N",
        show_default=False,
    ),
]


@command()
def film(trained: Trained, data: TextData, config: FilmConfig, run: Run) -> None:
    """Statistics and roles of every head at each checkpoint of a training: tables by step, figures, a page."""
    import headscope

    assert run.out is not None
    with progress(f"{trained}") as update:
        study = headscope.film(trained, data, config, run=replace(run, progress=update))
    note_few_texts(study)
    typer.echo(run.out / "index.html")
