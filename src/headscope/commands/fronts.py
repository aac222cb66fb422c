"""headscope fronts: several searches on the same axes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import Overwrite, drawing_figures, typed

EXAMPLES = """
[bold]Examples[/bold]

headscope fronts cut-beam cut-greedy gated --out fronts

headscope fronts cut-beam gated --roles study --out fronts

In Python: headscope.fronts(["cut-beam", "gated"])
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def fronts(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY",
            help="What headscope prune and headscope gate wrote",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The study to write; must not exist yet", show_default=False)
    ],
    roles: Annotated[
        Path | None,
        typer.Option(
            help="A study of headscope analyze: what do the heads do that are kept?",
            show_default="none",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Searches and gates of one model and task on the same axes, and what the heads they keep do."""
    from headscope.atomic_dir import drafted
    from headscope.pruning.compare_fronts import fronts as run
    from headscope.report.write import write_into

    with drafted(out, overwrite=overwrite) as folder:
        study = run(studies, roles=roles, command=typed())
        with drawing_figures():
            write_into(study, folder)
    typer.echo(out)
