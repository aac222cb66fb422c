"""headscope masks: list the named masks, show one, compare several on a task."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.commands._app import app, examples
from headscope.commands._early import say_first
from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, argument, print_json, say, showing_progress
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.show_mask import WIDEST, ShowMaskConfig

LISTED = examples(
    "headscope masks",
    "headscope masks show star --out star.svg",
    "headscope masks compare minilm --task stsb --data stsb_dev.tsv --out masks",
    "headscope masks learn ./minilm-mnli --task mnli --data glue --sparsity 0.8,0.9 --out learned",
    "headscope evaluate minilm --task stsb --data stsb_dev.tsv --mask window:width=8+first-and-last",
    "In Python: headscope.list_masks()",
)

masks = typer.Typer(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
app.add_typer(
    masks,
    name="masks",
    help="List attention masks, show one, compare them on a task, or learn one.",
    epilog=LISTED,
    rich_help_panel="Learn",
)


@masks.callback(invoke_without_command=True)
def list_by_default(context: typer.Context, as_json: AsJson = False) -> None:
    """List the named masks with their parameters and the share of the 128 × 128 pairs of positions that they forbid."""
    if context.invoked_subcommand is None:
        say_first("masks", {})
        list_masks(as_json)


@masks.command("list", epilog=examples("headscope masks list", "headscope masks list --json"))
def list_masks(as_json: AsJson = False) -> None:
    """List the named masks with their parameters and the share of the 128 × 128 pairs of positions that they forbid."""
    import headscope

    rows = headscope.list_masks().record
    if as_json:
        print_json(rows)
        return
    typer.echo(f"{'name':14} forbidden  allowed attention; the share is of 128 x 128 positions")
    for name, row in rows.items():
        typer.echo(f"{name:15} {100 * row['forbidden']:6.1f} %  {row['description']}")
        if row["parameters"]:
            typer.echo(f"{'':15} {'':8}  {name}:{row['parameters']}")


Mask = Annotated[str, argument("MASK", "Mask by name, e.g. star or window:width=8, or a file")]


@command(app=masks)
def show(mask: Mask, config: ShowMaskConfig, as_json: AsJson = False) -> None:
    """Show which positions a mask lets attend to each other."""
    import headscope
    from headscope.masks import read_mask
    from headscope.masks.mask_spec import check_fits

    read_mask(mask, "MASK")  # errors name the argument of the shell
    check_fits(mask, config.length, "MASK")
    view = headscope.show_mask(mask, config)
    if as_json:
        print_json(view.record)
        return
    for line in view.sentences() if config.out is not None else view.lines():
        typer.echo(line)
    if config.out is not None:
        typer.echo(config.out)
    elif view.length > WIDEST:
        say(f"too wide for a terminal: take --length {WIDEST} or less, or --out mask.svg")


@command(app=masks)
def compare(
    model: Model,
    data: TaskData,
    config: CompareMasksConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Compare masks on a task: applied to the model, after a short repair, and trained from the start."""
    import headscope

    with showing_progress(f"{model} on {data.task}", run) as run:
        study = headscope.compare_masks(model, data, config, reading=reading, run=run)
    rows = study.tables["mask_table"].to_dict("records")
    if as_json:
        print_json({**study.record, "masks": rows})
        return
    for row in rows:
        change = (
            f"{row['metric_change']:+.4f} [{row['change_low']:+.4f}, {row['change_high']:+.4f}]"
        )
        typer.echo(
            f"{row['mode']:10} {row['mask']:20} {100 * row['sparsity']:5.1f} % forbidden  {row['metric']:.4f}  {change}"
        )
    typer.echo(run.out)
