"""headscope speed: time of a model by its number of heads, or of attention under a mask."""

from __future__ import annotations

import json
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


@command()
def speed(model: Model, config: SpeedConfig, run: Run, as_json: AsJson = False) -> None:
    """Time a model by its number of heads, and the most that pruning can gain; or attention under a mask."""
    import headscope

    name = model if config.mask is None else f"{model} under {config.mask}"
    with progress(name) as update:
        result = headscope.speed(model, config, run=replace(run, progress=update))
    if as_json:
        typer.echo(json.dumps(_values(result)))
    else:
        for line in result.lines():
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
