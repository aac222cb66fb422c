"""headscope report: studies of any commands as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import argument, drawing_figures
from headscope.config.report import ReportConfig
from headscope.config.shared import Run

Studies = Annotated[
    list[Path], argument("STUDY", "Directories that any command wrote, comparisons too")
]


@command()
def report(studies: Studies, config: ReportConfig, run: Run) -> None:
    """One page for a whole study: what several commands found, joined by model, and models compared."""
    from headscope.analysis.join import join

    assert run.out is not None
    joined = join(studies, command=run.typed)
    with drawing_figures():
        typer.echo(joined.write(run.out, overwrite=run.overwrite))
