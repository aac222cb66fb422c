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
from headscope.config.show_mask import WIDEST, ShowMaskConfig

LISTED = """
[bold]Examples[/bold]

headscope masks

headscope masks show star --out star.svg

headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks

headscope evaluate minilm --task stsb --data stsb_dev.tsv --mask window:width=8+first-and-last

In Python: headscope.masks.read_mask
"""

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
    import headscope
    from headscope.masks import read_mask
    from headscope.masks.mask_spec import check_fits

    read_mask(mask, "MASK")  # errors name the argument of the shell
    check_fits(mask, config.length, "MASK")
    view = headscope.show_mask(mask, config)
    for line in view.sentences() if config.out is not None else view.lines():
        typer.echo(line)
    if config.out is not None:
        typer.echo(config.out)
    elif view.length > WIDEST:
        say(f"too wide for a terminal: take --length {WIDEST} or less, or --out mask.svg")


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
