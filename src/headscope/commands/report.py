"""headscope report: one page for several studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._from_config import command
from headscope.commands._options import argument, drawing_figures, say
from headscope.config.report import ReportConfig
from headscope.config.shared import Run

Studies = Annotated[
    list[Path],
    argument(
        "STUDY", "Directories that headscope analyze, importance, prune, gate or compare wrote"
    ),
]


@command()
def report(studies: Studies, config: ReportConfig, run: Run) -> None:
    """Write one page for several studies. It joins the studies of each model, and compares models and Pareto fronts."""
    from headscope.analysis.join import join

    assert run.out is not None
    joined = join(studies, command=run.typed)
    if config.tables is not None:
        say(f"tables: {joined.write_tables(config.tables, overwrite=run.overwrite)}")
    if config.png is not None:
        say(f"figures: {joined.write_figures(config.png, overwrite=run.overwrite)}")
    with drawing_figures(run):
        typer.echo(joined.write(run.out, overwrite=run.overwrite))
