"""headscope doctor: versions, devices and what is supported here."""

from __future__ import annotations

import typer

from headscope.commands._app import app
from headscope.commands._flags import to_flags


@app.command()
def doctor() -> None:
    """Print versions, devices, supported families, and whether the models at hand can be watched."""
    import torch

    from headscope.errors import HeadscopeError
    from headscope.model import zoo
    from headscope.model.bfloat16 import STATES, bfloat16_state
    from headscope.model.families import families
    from headscope.model.fold import has_numba
    from headscope.model.load import load
    from headscope.study.run_record import versions

    typer.echo(
        "versions  " + ", ".join(f"{name} {version}" for name, version in versions().items())
    )
    devices = [
        "cpu",
        *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())),
    ]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    typer.echo(f"devices   {', '.join(devices)}; {torch.get_num_threads()} threads")
    typer.echo(f"bfloat16  {STATES[bfloat16_state()]}")
    compiled = "numba" if has_numba() else "not compiled: pip install numba makes them faster"
    typer.echo(f"row sums  {compiled}")
    typer.echo(f"families  {', '.join(families())}")
    typer.echo(f"cache     {zoo.cache_directory()}")
    for name in zoo.MODELS:
        if zoo.find(name) is None:
            typer.echo(f"model     {name}: not here (headscope models fetch {name})")
            continue
        try:
            model = load(name)
            typer.echo(
                f"model     {name}: {len(model.heads)} heads, watching changes outputs by {model.self_check():.0e}"
            )
        except HeadscopeError as error:
            typer.echo(f"model     {name}: {to_flags(str(error))}")
