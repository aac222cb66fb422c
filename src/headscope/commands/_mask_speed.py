"""headscope speed --mask: attention with and without a mask, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headscope.commands._options import load_aloud, progress

if TYPE_CHECKING:
    from headscope.masks.speed import MaskSpeed


def speed_of_mask(
    model: str,
    mask: str,
    batch_size: int | None,
    lengths: list[int] | None,
    repeats: int,
    *,
    out: Path | None,
    as_json: bool,
    **how: str | None,
) -> None:
    """Measure, print, draw; what cannot be is said before anything is loaded. how: revision, device and dtype."""
    from headscope.masks.mask_spec import read_mask
    from headscope.masks.speed import LENGTHS, SPARSE, mask_speed
    from headscope.report.rendered_figures import save_figure

    wanted, sizes, size = (
        read_mask(mask),
        lengths or LENGTHS,
        1 if batch_size is None else batch_size,
    )
    one = load_aloud(model, **how)  # type: ignore[arg-type]
    with progress(f"{model} under {wanted.name}") as update:
        found = mask_speed(
            one, wanted, lengths=sizes, batch_size=size, repeats=repeats, progress=update
        )
    if as_json:
        pays = {way: found.pays_from(way) for way in SPARSE}
        typer.echo(json.dumps({"model": one.name, **asdict(found), "pays_from": pays}))
    else:
        for line in _table(found, one.name):
            typer.echo(line)
    if out is not None:
        from headscope.report.drawing.mask_speed import draw_mask_speed

        picture = save_figure(draw_mask_speed(found), out)
        typer.echo(picture, err=as_json)


def _table(found: MaskSpeed, name: str) -> Iterator[str]:
    """A line for each length, then what follows from them, and no more."""
    from headscope.masks.speed import DENSE, FLEX, SPARSE

    yield f"{name}, {found.site}: {found.heads} heads of width {found.width}, {found.batch_size} at a time"
    yield "tokens  forbidden  blocks left  of the model  attention  milliseconds  times as fast as dense"
    for row in found.lengths:
        share = "" if row.attention is None else f"{row.attention:.0%}"
        start = f"{row.length:6}  {row.sparsity:9.1%}  {row.blocks:11.1%}  {share:>12}"
        for one in row.ways:
            gain = (
                ""
                if one.way == DENSE
                else f"{1 / one.ratio:8.2f} [{1 / one.high:.2f}, {1 / one.low:.2f}]"
            )
            yield f"{start:44}  {one.way:9}  {one.milliseconds:12.2f}  {gain}".rstrip()
            start = ""
    for way in SPARSE:
        if way == FLEX and found.without_flex:
            yield f"{way}: left out, as it cannot be compiled here: {found.without_flex}"
        elif (length := found.pays_from(way)) is not None:
            yield f"{way}: from length {length} on the block-sparse mask is faster on this machine"
        else:
            yield f"{way}: at none of these lengths is the block-sparse mask faster on this machine"
    yield "milliseconds: of the fastest turn; times as fast: the median of the ratios within a turn"
    if found.run_length is not None:
        yield f"of the model: dense attention's share of its time, by a run of {found.run_length} tokens"
