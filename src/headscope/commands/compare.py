"""headscope compare: the heads of two or more models side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import say
from headscope.config.compare import CompareConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.progress import progress

Studies = Annotated[
    list[Path],
    typer.Argument(
        metavar="STUDY",
        help="Directories written by headscope analyze, two or more",
        show_default=False,
    ),
]


@command()
def compare(studies: Studies, config: CompareConfig, data: TextData, run: Run) -> None:
    """Compare the heads of models: layers side by side, smoothness, roles, matched heads, change by fine-tuning."""
    import headscope

    with progress("maps") as update:
        comparison = headscope.compare(studies, data, config, run=replace(run, progress=update))
    for note in comparison.notes:
        say(f"note: {note}")
    typer.echo(Path(str(run.out)) / "index.html")
