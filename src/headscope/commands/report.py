"""headscope report: studies of any commands as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import drawing_figures, typed

EXAMPLES = """
[bold]Examples[/bold]

headscope report study which small --out index.html

headscope report before after --out index.html

In Python: headscope.join(["study", "which", "small"]).write("index.html")
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def report(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY",
            help="Directories that any command wrote, comparisons too",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The page to write; must not exist yet", show_default=False)
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page that is already there")
    ] = False,
) -> None:
    """One page for a whole study: what several commands found, joined by model, and models compared."""
    from headscope.analysis.join import join
    from headscope.report.write import write

    joined = join(studies, command=typed())
    with drawing_figures():
        page = write(joined, out, overwrite=overwrite)
    typer.echo(page)
