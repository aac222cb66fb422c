"""headscope models: list, fetch, verify and describe the named models."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headscope.commands._app import app, examples
from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, argument, print_json, say
from headscope.config.shared import Run
from headscope.config.show_model import ShowModelConfig
from headscope.errors import printable

models = typer.Typer(
    no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(
    models,
    name="models",
    help="List the named models, fetch or verify one, or show how a model turns a text into a vector.",
    rich_help_panel="Models",
    epilog=examples("headscope models", "headscope models show minilm"),
)


@models.callback(invoke_without_command=True)
def list_by_default(context: typer.Context, as_json: AsJson = False) -> None:
    """List the named models, with size and licence, and whether they are downloaded."""
    if context.invoked_subcommand is None:
        list_models(as_json)


@models.command("list", epilog=examples("headscope models list", "headscope models list --json"))
def list_models(as_json: AsJson = False) -> None:
    """List the named models, with size and licence, and whether they are downloaded."""
    import headscope

    rows = headscope.list_models().record
    if as_json:
        print_json(rows)
        return
    for name, row in rows.items():
        state = "downloaded" if row["is_downloaded"] else "not downloaded"
        typer.echo(f"{name:14} {row['shape']}; {row['download_mb']:.0f} MB, {state}")
        typer.echo(f"{'':14} {row['description']}")
        typer.echo(f"{'':14} {row['licence']}")


@models.command(
    epilog=examples("headscope models fetch minilm", "headscope models fetch minilm smollm2")
)
def fetch(
    names: Annotated[
        list[str], argument("NAME…", "Names of models, as listed by headscope models")
    ],
) -> None:
    """Download named models into the cache and verify their checksums; no code of the models is installed or run."""
    from headscope.model import zoo

    for name in names:
        typer.echo(zoo.fetch(name, say))


@command(app=models)
def show(model: Model, config: ShowModelConfig, run: Run, as_json: AsJson = False) -> None:
    """Show how a model turns a text into one vector, as its files state: pooling, prompts, length, similarity."""
    import headscope

    summary = headscope.show_model(model, config, run=replace(run, log=say))
    if as_json:
        print_json(summary.record)
        return
    for line in summary.lines():
        typer.echo(printable(line))


@models.command(
    epilog=examples("headscope models verify minilm", "headscope models verify minilm smollm2")
)
def verify(
    names: Annotated[list[str], argument("NAME…", "Names of downloaded models")],
) -> None:
    """Verify the checksums of a downloaded model."""
    from headscope.model import zoo

    for name in names:
        zoo.verify(name)
        typer.echo(f"{name}: checksums match")
