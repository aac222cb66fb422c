"""headscope speed: what head pruning can gain on this machine, and what it did."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from headscope.commands import app
from headscope.commands._options import Device, Dtype, Model, Revision, load_aloud, progress

EXAMPLES = """
[bold]Examples[/bold]

headscope speed minilm

headscope speed small --against minilm --batch-size 32 --length 128

In Python: headscope.pruning.speed
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def speed(
    model: Model,
    against: Annotated[
        str | None, typer.Option(help="The model it was cut from, measured in turns with it", show_default="none")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Sequences at a time")] = 32,
    length: Annotated[int, typer.Option(help="Tokens of each")] = 128,
    repeats: Annotated[int, typer.Option(help="How often each is run")] = 12,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
) -> None:
    """The time of a model by its number of heads, measured here, and the most that cutting heads can gain."""
    from headscope.pruning.speed import layers, measure

    one = load_aloud(model, revision=revision, device=device, dtype=dtype)
    other = None if against is None else load_aloud(against, revision=None, device=device, dtype=dtype)
    with progress(model) as update:
        by_share = layers(other or one, batch_size=batch_size, length=length, repeats=repeats, progress=update)
        models = [one] if other is None else [other, one]
        found = measure(models, batch_size=batch_size, length=length, repeats=repeats)
    if as_json:
        told = {"share": by_share.share, "time": by_share.time, "bound": by_share.bound}
        typer.echo(json.dumps({"layers": told, "models": [asdict(each) for each in found]}))
        return
    typer.echo(f"{batch_size} sequences of {length} tokens")
    typer.echo(f"heads of {(other or one).name} left")
    typer.echo("heads left    time   times as fast")
    for share, ratio in zip(by_share.share, by_share.time, strict=True):
        note = "   the bound" if share == by_share.share[-1] else ""
        typer.echo(f"{share:10.0%}  {ratio:6.3f}  {1 / ratio:14.2f}{note}")
    typer.echo("")
    typer.echo(
        "model               heads  million parameters  MB weights  MB working  ms a batch  sequences/s  times as fast"
    )
    for each in found:
        typer.echo(
            f"{each.name[-18:]:18} {each.heads:6}  {each.parameters / 1e6:18.2f}  {each.megabytes:10.1f}  "
            f"{each.working:10.1f}  {each.seconds * 1e3:10.1f}  {each.throughput:11.1f}  {1 / each.ratio:13.2f}"
            + ("" if each is found[0] else f" [{1 / each.high:.2f}, {1 / each.low:.2f}]")
        )
