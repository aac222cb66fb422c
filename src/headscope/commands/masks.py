"""headscope masks: the named masks, and what one looks like."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._early import say_first
from headscope.commands._from_config import command
from headscope.commands._options import Model, argument, say, showing_progress
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.show_mask import ShowMaskConfig

LISTED = """
[bold]Examples[/bold]

headscope masks

headscope masks show star --out star.svg

headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks

headscope evaluate minilm --task stsb --data stsb_dev.tsv --mask window:width=8+first-and-last

In Python: headscope.masks.read_mask
"""
WIDEST = 40  # positions that fit into a terminal

masks = typer.Typer(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(
    masks,
    name="masks",
    help="List the named masks of attention, show one, or compare them on a task.",
    epilog=LISTED,
    rich_help_panel="Learn",
)


@masks.callback(invoke_without_command=True)
def names(context: typer.Context) -> None:
    """List the named masks, their parameters, and how much of attention at 128 positions they forbid."""
    if context.invoked_subcommand is not None:
        return
    say_first("masks", {})
    from headscope.config.masks import format_parameters
    from headscope.masks import read_mask, sparsity
    from headscope.masks.mask_spec import defaults_of
    from headscope.masks.patterns import PATTERNS

    typer.echo(
        f"{'name':14} forbidden  what a position may attend to; the share is of 128 x 128 positions"
    )
    for name, make in PATTERNS.items():
        forbidden = 100 * sparsity(read_mask(name).at(128))
        typer.echo(f"{name:15} {forbidden:6.1f} %  {(make.__doc__ or '').splitlines()[0]}")
        if parameters := format_parameters(defaults_of(make)):
            typer.echo(f"{'':15} {'':8}  {name}:{parameters}")


Mask = Annotated[str, argument("MASK", "A name, with parameters or not")]


@command(app=masks)
def show(mask: Mask, config: ShowMaskConfig) -> None:
    """What a mask lets attend to what."""
    from headscope.masks import read_mask, resolve_mask, sparsity
    from headscope.masks.mask_spec import check_fits

    length = config.length
    pattern = read_mask(mask, "MASK")
    check_fits(mask, length, "MASK")
    allowed = pattern.at(length)[0]  # [query, key]
    empty = int((~allowed.any(dim=1)).sum())
    allowed = resolve_mask(allowed)
    forbidden = f"{100 * sparsity(allowed):.2f} % of {length} x {length} positions"
    typer.echo(f"{pattern.name}: {forbidden} may not be attended to")
    if empty:
        typer.echo(
            f"{empty} of {length} positions may attend to nothing: these attend to themselves"
        )
    if config.out is not None:
        from headscope.report.drawing.masks import draw_mask
        from headscope.report.rendered_figures import save_figure

        typer.echo(save_figure(draw_mask(pattern, length), config.out))
    elif length > WIDEST:
        say(f"too wide for a terminal: take --length {WIDEST} or less, or --out mask.svg")
    else:
        for row in allowed.tolist():
            typer.echo("".join("█" if cell else "·" for cell in row))


@command(app=masks)
def compare(
    model: Model, data: TaskData, config: CompareMasksConfig, reading: Reading, run: Run
) -> None:
    """What a task loses under each mask: applied to the model, after a short repair, and trained from the start."""
    import headscope

    with showing_progress(f"{model} on {data.task}", run) as run:
        study = headscope.compare_masks(model, data, config, reading=reading, run=run)
    for row in study.tables["mask_table"].to_dict("records"):
        change = (
            f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        typer.echo(
            f"{row['mode']:10} {row['mask']:20} {100 * row['sparsity']:5.1f} % forbidden  {row['metric']:.4f}  {change}"
        )
    typer.echo(run.out)
