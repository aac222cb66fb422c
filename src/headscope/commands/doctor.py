"""headscope doctor: versions, devices and what is supported here."""

from __future__ import annotations

import typer

from headscope.commands._app import app, examples
from headscope.commands._flags import to_flags
from headscope.commands._options import AsJson, print_json


@app.command(
    rich_help_panel="Models", epilog=examples("headscope doctor", "headscope doctor --json")
)
def doctor(as_json: AsJson = False) -> None:
    """Print versions, devices and supported families, and run the self-check of downloaded models."""
    import headscope

    record = headscope.doctor().record
    if as_json:
        print_json(record)
        return
    listed = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    typer.echo(f"versions  {listed}")
    typer.echo(f"devices   {', '.join(record['devices'])}; {record['threads']} threads")
    typer.echo(f"bfloat16  {record['bfloat16']}")
    typer.echo(f"row sums  {record['row_sums']}")
    typer.echo(f"families  {', '.join(record['families'])}")
    typer.echo(f"cache     {record['cache']}")
    for name, state in record["models"].items():
        typer.echo(f"model     {name}: {to_flags(state)}")
