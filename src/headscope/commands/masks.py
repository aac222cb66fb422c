"""headscope masks: the named masks, and what one looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._early import say_first
from headscope.commands._options import (
    Device,
    Model,
    OpenSpecial,
    Overwrite,
    Pooling,
    Prompt,
    Revision,
    progress,
    report_aloud,
    say,
    typed,
)
from headscope.commands._tasks import (
    BatchSize,
    Columns,
    Data,
    Labels,
    MaxLength,
    TaskName,
    TrainLimit,
    numbers_of,
    pairs_of,
)

LISTED = """
[bold]Examples[/bold]

headscope masks

headscope masks show star --out star.svg

headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks

headscope evaluate minilm --task stsb --data stsb_dev.tsv --mask window:width=8+first-and-last

In Python: headscope.masks.read_mask
"""
SHOWN = """
[bold]Examples[/bold]

headscope masks show star --length 16

headscope masks show 'longformer:width=3,globals=first/last-no-diagonal' --length 64 --out longformer.svg

headscope masks show learned/sparsity-0.9-seed-0/mask.npz --length 32

In Python: headscope.masks.read_mask
"""
COMPARED = """
[bold]Examples[/bold]

headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks

headscope masks compare ./minilm-mnli --task mnli --data glue --repair 1 --start minilm --seeds 0,1,2 --out masks

headscope masks compare minilm --task stsb --data stsb_dev.tsv --mask star --mask mine.npy --out masks

In Python: headscope.compare_masks
"""
WIDEST = 40  # positions that fit into a terminal

masks = typer.Typer(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(
    masks,
    name="masks",
    help="List the named masks of attention, show one, or compare them on a task.",
    epilog=LISTED,
)


@masks.callback(invoke_without_command=True)
def names(context: typer.Context) -> None:
    """List the named masks, their parameters, and how much of attention at 128 positions they forbid."""
    if context.invoked_subcommand is not None:
        return
    say_first("masks", {})
    from headscope.config.masks import written_parameters
    from headscope.masks import read_mask, sparsity
    from headscope.masks.mask_spec import defaults_of
    from headscope.masks.patterns import PATTERNS

    typer.echo(
        f"{'name':14} forbidden  what a position may attend to; the share is of 128 x 128 positions"
    )
    for name, make in PATTERNS.items():
        forbidden = 100 * sparsity(read_mask(name).at(128))
        typer.echo(f"{name:15} {forbidden:6.1f} %  {(make.__doc__ or '').splitlines()[0]}")
        if parameters := written_parameters(defaults_of(make)):
            typer.echo(f"{'':15} {'':8}  {name}:{parameters}")


@masks.command(epilog=SHOWN)
def show(
    mask: Annotated[
        str,
        typer.Argument(metavar="MASK", help="A name, with parameters or not", show_default=False),
    ],
    length: Annotated[int, typer.Option(help="Positions")] = 128,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A picture to write, such as mask.svg", show_default="as text, if it fits"
        ),
    ] = None,
) -> None:
    """What a mask lets attend to what."""
    from headscope.config.checks import check_count
    from headscope.masks import met, read_mask, sparsity
    from headscope.masks.mask_spec import check_fits

    check_count(length, "--length")
    if out is not None:
        from headscope.report.rendered_figures import check_picture

        check_picture(out)
    one = read_mask(mask, "MASK")
    check_fits(mask, length, "MASK")
    allowed = one.at(length)[0]
    empty = int((~allowed.any(dim=1)).sum())
    allowed = met(allowed)
    typer.echo(
        f"{one.name}: {100 * sparsity(allowed):.2f} % of {length} x {length} positions may not be attended to"
    )
    if empty:
        typer.echo(
            f"{empty} of {length} positions may attend to nothing: these attend to themselves"
        )
    if out is not None:
        from headscope.report.drawing.mask import draw_mask
        from headscope.report.rendered_figures import save_figure

        typer.echo(save_figure(draw_mask(one, length), out))
    elif length > WIDEST:
        say(f"too wide for a terminal: take --length {WIDEST} or less, or --out mask.svg")
    else:
        for row in allowed.tolist():
            typer.echo("".join("█" if cell else "·" for cell in row))


@masks.command(epilog=COMPARED)
def compare(
    model: Model,
    task: TaskName,
    data: Data,
    out: Annotated[
        Path, typer.Option(help="The study to write; must not exist yet", show_default=False)
    ],
    mask: Annotated[
        list[str] | None,
        typer.Option(
            help="A mask to compare, a name or a file; give it several times",
            show_default="the named ones",
        ),
    ] = None,
    repair: Annotated[
        int, typer.Option(help="Train the model under each mask for so many epochs too")
    ] = 0,
    start: Annotated[
        str | None,
        typer.Option(
            help="A model to train under each mask from the start: minilm, say", show_default="none"
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Of trainings, and of masks that are drawn by chance")
    ] = "0",
    open_special: OpenSpecial = False,
    epochs: Annotated[int, typer.Option(help="Of the trainings from the start")] = 3,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Of the trainings")] = 5e-5,
    report_on: Annotated[str, typer.Option(help="The split that is reported on")] = "dev",
    report_limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to report on, evenly spread", show_default="all"),
    ] = None,
    columns: Columns = None,
    labels: Labels = None,
    limit: TrainLimit = None,
    max_length: MaxLength = None,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped, to the same result")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """What a task loses under each mask: straight away, after a short repair, and when trained so from the start."""
    from headscope.learning.compare_masks import NAMED, MaskTableOptions, compare_masks
    from headscope.training.settings import Settings

    options = MaskTableOptions(
        tuple(mask or NAMED), numbers_of(seeds, "--seeds"), repair, start, open_special
    )
    with progress(f"{model} on {task}") as update:
        study = compare_masks(
            model,
            task=task,
            data=data,
            out=out,
            options=options,
            settings=Settings(epochs, batch_size, learning_rate),
            report_on=report_on,
            report_limit=report_limit,
            columns=pairs_of(columns, "--columns"),
            labels=pairs_of(labels, "--labels"),
            max_length=max_length,
            limit=limit,
            device=device,
            pooling=pooling,
            prompt=prompt,
            revision=revision,
            resume=resume,
            overwrite=overwrite,
            report=report_aloud(update),
            command=typed(),
            watch=lambda name, done, total: update(done, total, f"{name}, steps"),
            say=say,
        )
    for row in study.tables["mask_table"].to_dict("records"):
        change = (
            f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        typer.echo(
            f"{row['mode']:10} {row['mask']:20} {100 * row['sparsity']:5.1f} % forbidden  {row['metric']:.4f}  {change}"
        )
    typer.echo(out)
