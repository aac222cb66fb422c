"""headscope speed: time of a model by its number of heads, or of attention under a mask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model
from headscope.config.shared import Run
from headscope.config.speed import SpeedConfig
from headscope.progress import progress

if TYPE_CHECKING:
    from headscope.api.speed import SpeedResult
    from headscope.masks.speed import MaskSpeed

EXAMPLES = """
[bold]Examples[/bold]

headscope speed minilm

headscope speed small --against minilm --batch-size 32 --length 128

headscope speed minilm --mask longformer --length 512,1024,2048,4096 --out pays.svg

In Python: headscope.speed
"""


@command(EXAMPLES, group="Prune")
def speed(model: Model, config: SpeedConfig, run: Run, as_json: AsJson = False) -> None:
    """Time a model by its number of heads, and the most that pruning can gain; or attention under a mask."""
    import headscope

    name = model if config.mask is None else f"{model} under {config.mask}"
    with progress(name) as update:
        result = headscope.speed(model, config, run=replace(run, progress=update))
    if as_json:
        typer.echo(json.dumps(_values(result)))
    else:
        lines = _mask_lines(result.mask, result.name) if result.mask else _lines(result, config)
        for line in lines:
            typer.echo(line)
    if run.out is not None:
        typer.echo(run.out, err=as_json)


def _values(result: SpeedResult) -> dict[str, object]:
    from headscope.masks.speed import SPARSE

    if result.mask is not None:
        pays = {way: result.mask.pays_from(way) for way in SPARSE}
        return {"model": result.name, **asdict(result.mask), "pays_from": pays}
    assert result.layers is not None
    layers = {name: getattr(result.layers, name) for name in ("share", "time", "bound")}
    return {"layers": layers, "models": [asdict(model) for model in result.models]}


def _lines(result: SpeedResult, config: SpeedConfig) -> Iterator[str]:
    """A line for each share of heads, then one for each model."""
    assert result.layers is not None
    yield f"{config.sequences} sequences of {config.lengths[0]} tokens"
    yield f"heads of {result.models[0].name} left"
    yield "heads left    time   times as fast"
    for share, ratio in zip(result.layers.share, result.layers.time, strict=True):
        note = "   the bound" if share == result.layers.share[-1] else ""
        yield f"{share:10.0%}  {ratio:6.3f}  {1 / ratio:14.2f}{note}"
    yield ""
    yield "model               heads  million parameters  MB weights  MB working  ms a batch  sequences/s  times as fast"
    for model in result.models:
        yield (
            f"{model.name[-18:]:18} {model.heads:6}  {model.parameters / 1e6:18.2f}  {model.megabytes:10.1f}  "
            f"{model.working:10.1f}  {model.seconds * 1e3:10.1f}  {model.throughput:11.1f}  {1 / model.ratio:13.2f}"
            + ("" if model is result.models[0] else f" [{1 / model.high:.2f}, {1 / model.low:.2f}]")
        )


def _mask_lines(result: MaskSpeed, name: str) -> Iterator[str]:
    """A line for each length, then the lengths from which the mask is faster."""
    from headscope.masks.speed import DENSE, FLEX, SPARSE

    yield f"{name}, {result.site}: {result.heads} heads of width {result.width}, {result.batch_size} at a time"
    yield "tokens  forbidden  blocks left  of the model  attention  milliseconds  times as fast as dense"
    for row in result.lengths:
        share = "" if row.attention is None else f"{row.attention:.0%}"
        start = f"{row.length:6}  {row.sparsity:9.1%}  {row.blocks:11.1%}  {share:>12}"
        for timed in row.ways:
            gain = (
                ""
                if timed.way == DENSE
                else f"{1 / timed.ratio:8.2f} [{1 / timed.high:.2f}, {1 / timed.low:.2f}]"
            )
            yield f"{start:44}  {timed.way:9}  {timed.milliseconds:12.2f}  {gain}".rstrip()
            start = ""
    for way in SPARSE:
        if way == FLEX and result.without_flex:
            yield f"{way}: left out, as it cannot be compiled here: {result.without_flex}"
        elif (length := result.pays_from(way)) is not None:
            yield f"{way}: from length {length} on the block-sparse mask is faster on this machine"
        else:
            yield f"{way}: at none of these lengths is the block-sparse mask faster on this machine"
    yield "milliseconds: of the fastest turn; times as fast: the median of the ratios within a turn"
    if result.run_length is not None:
        yield f"of the model: dense attention's share of its time, by a run of {result.run_length} tokens"
