"""headscope doctor: versions, devices and what is supported here."""

from __future__ import annotations

from typing import Any

import typer

from headscope.commands._app import app, examples
from headscope.commands._flags import to_flags
from headscope.commands._options import AsJson, print_json


@app.command(
    rich_help_panel="Models", epilog=examples("headscope doctor", "headscope doctor --json")
)
def doctor(as_json: AsJson = False) -> None:
    """Print versions, devices and supported families, and run the self-check of downloaded models."""
    import torch

    from headscope.model import zoo
    from headscope.model.bfloat16 import STATES, bfloat16_state
    from headscope.model.families import families
    from headscope.study.run_record import versions

    devices = [
        "cpu",
        *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())),
    ]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    record: dict[str, Any] = {
        "versions": versions(),
        "devices": devices,
        "threads": torch.get_num_threads(),
        "bfloat16": STATES[bfloat16_state()],
        "families": list(families()),
        "cache": str(zoo.cache_directory()),
        "models": {name: _check_model(name) for name in zoo.MODELS},
    }
    if as_json:
        print_json(record)
        return
    listed = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    typer.echo(f"versions  {listed}")
    typer.echo(f"devices   {', '.join(devices)}; {record['threads']} threads")
    typer.echo(f"bfloat16  {record['bfloat16']}")
    typer.echo(f"families  {', '.join(record['families'])}")
    typer.echo(f"cache     {record['cache']}")
    for name, state in record["models"].items():
        typer.echo(f"model     {name}: {state}")


def _check_model(name: str) -> str:
    """The result of a model's self-check, if it is downloaded."""
    from headscope.errors import HeadscopeError
    from headscope.model import zoo
    from headscope.model.load import load

    if zoo.find(name) is None:
        return f"not downloaded (headscope models fetch {name})"
    try:
        model = load(name)
        return f"{len(model.heads)} heads, self-check: outputs differ by {model.self_check():.0e}"
    except HeadscopeError as error:
        return to_flags(str(error))
