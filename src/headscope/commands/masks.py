"""headscope masks: the named masks, and what one looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands import app

EXAMPLES = """
[bold]Examples[/bold]

headscope masks show star --out star.svg

headscope masks show 'longformer:width=3,globals=first/last-no-diagonal' --length 64

headscope evaluate minilm --task stsb --data stsb_dev.tsv --mask window:width=8+first-and-last

In Python: headscope.masks.read_mask
"""

masks = typer.Typer(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(masks, name="masks", help="List the named masks of attention, or show one.", epilog=EXAMPLES)


@masks.callback(invoke_without_command=True)
def names(context: typer.Context) -> None:
    """List the named masks, their parameters, and how much of attention at 128 positions they forbid."""
    if context.invoked_subcommand is not None:
        return
    from headscope.masks import read_mask, sparsity
    from headscope.masks.mask import written_parameters
    from headscope.masks.patterns import PATTERNS

    for name, make in PATTERNS.items():
        forbidden = 100 * sparsity(read_mask(name).at(128))
        typer.echo(f"{name:15} {forbidden:5.1f} %  {(make.__doc__ or '').splitlines()[0]}")
        if parameters := written_parameters(make):
            typer.echo(f"{'':15} {'':7}  {name}:{parameters}")


@masks.command(epilog=EXAMPLES)
def show(
    mask: Annotated[str, typer.Argument(metavar="MASK", help="A name, with parameters or not", show_default=False)],
    length: Annotated[int, typer.Option(help="Positions")] = 128,
    out: Annotated[
        Path | None, typer.Option(help="A picture to write, such as mask.svg", show_default="as text, if it fits")
    ] = None,
) -> None:
    """What a mask lets attend to what."""
    from headscope.masks import read_mask, sparsity
    from headscope.tasks.base import check_count

    check_count(length, "--length")
    one = read_mask(mask)
    allowed = one.at(length)[0]
    typer.echo(f"{one.name}: {100 * sparsity(allowed):.2f} % of {length} x {length} positions may not be attended to")
    if out is not None:
        from headscope.report.figures._mask import draw_mask
        from headscope.report.plates import save_figure

        typer.echo(save_figure(draw_mask(one, length), out))
    elif length <= 40:
        for row in allowed.tolist():
            typer.echo("".join("█" if cell else "·" for cell in row))
