"""headscope speed: what cutting heads or masking positions can gain on this machine, and what it did."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Dtype,
    Model,
    Revision,
    load_aloud,
    progress,
    separated,
)
from headscope.errors import HeadscopeError

EXAMPLES = """
[bold]Examples[/bold]

headscope speed minilm

headscope speed small --against minilm --batch-size 32 --length 128

headscope speed minilm --mask longformer --length 512,1024,2048,4096 --out pays.svg

In Python: headscope.model.latency, headscope.masks.speed
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def speed(
    model: Model,
    against: Annotated[
        str | None,
        typer.Option(
            help="The model it was cut from, measured in turns with it", show_default="none"
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="Instead: attention with and without this mask (headscope masks)",
            show_default="none",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Sequences at a time", show_default="32; 1 with --mask")
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            help="Tokens of each; several with --mask",
            show_default="128; 512,1024,2048,4096 with --mask",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often each is run")] = 12,
    out: Annotated[
        Path | None,
        typer.Option(help="With --mask: a picture to write, such as pays.svg", show_default="none"),
    ] = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table")
    ] = False,
) -> None:
    """The time of a model by its number of heads, and the most that cutting heads can gain; or what a mask gains."""
    lengths = lengths_of(length)
    if mask is not None:
        from headscope.commands._mask_speed import speed_of_mask

        how = {"revision": revision, "device": device, "dtype": dtype}
        speed_of_mask(model, mask, batch_size, lengths, repeats, out=out, as_json=as_json, **how)
        return
    from headscope.model.latency import layers, measure

    size, tokens = 32 if batch_size is None else batch_size, 128 if lengths is None else lengths[0]
    one = load_aloud(model, revision=revision, device=device, dtype=dtype)
    other = (
        None if against is None else load_aloud(against, revision=None, device=device, dtype=dtype)
    )
    with progress(model) as update:
        by_share = layers(
            other or one, batch_size=size, length=tokens, repeats=repeats, progress=update
        )
        models = [one] if other is None else [other, one]
        found = measure(models, batch_size=size, length=tokens, repeats=repeats)
    if as_json:
        told = {"share": by_share.share, "time": by_share.time, "bound": by_share.bound}
        typer.echo(json.dumps({"layers": told, "models": [asdict(each) for each in found]}))
        return
    typer.echo(f"{size} sequences of {tokens} tokens")
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


def lengths_of(told: str | None) -> list[int] | None:
    """`512,1024` as numbers."""
    names = separated(told)
    if names is None:
        return None
    wrong = [name for name in names if not name.isdecimal() or int(name) < 1]
    if wrong:
        raise HeadscopeError(
            f'"{wrong[0]}" is no length',
            where="--length",
            expected="1 or more; several with commas",
        )
    return [int(name) for name in names]
