"""headscope pretrain: a new encoder from a text corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Column,
    Device,
    MaskName,
    OpenSpecial,
    Overwrite,
    is_first,
    progress,
    say,
    typed,
)
from headscope.commands._tasks import BatchSize
from headscope.commands._training import (
    Checkpoints,
    Heads,
    Hidden,
    Intermediate,
    Layers,
    Resume,
    Vocabulary,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope pretrain --corpus wiki.txt.gz --out small-bert

headscope pretrain --corpus wiki.txt.gz --vocabulary 8000 --hidden 256 --epochs 3 --checkpoints 12 --out small-bert

headscope pretrain --config ./my-roberta/config.json --tokenizer ./my-roberta --corpus a.txt b.txt --out mine

headscope film small-bert --corpus wiki.txt.gz --limit 500 --out over-training

In Python: headscope.pretrain
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def pretrain(
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Files of text (one a line), FASTA or tables (csv, tsv, jsonl), also in gzip",
            metavar="FILE…",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the model into; must not exist yet", show_default=False
        ),
    ],
    config: Annotated[
        str | None,
        typer.Option(
            help="The kind of encoder: a named model, a directory, a hub id or a config.json",
            show_default="a small BERT: 4 layers, 4 heads, 128 wide",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="That of this model: a name, a directory or a hub id",
            show_default="that of --config; of the small BERT: minilm",
        ),
    ] = None,
    vocabulary: Vocabulary = None,
    layers: Layers = None,
    heads: Heads = None,
    hidden: Hidden = None,
    intermediate: Intermediate = None,
    max_length: Annotated[
        int, typer.Option(help="Tokens of a sequence, and positions of the model")
    ] = 128,
    epochs: Annotated[
        int | None,
        typer.Option(help="How often every sequence is seen, masked anew", show_default="1"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="So many steps instead", show_default="by --epochs")
    ] = None,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Highest rate, after the warm-up")] = 1e-3,
    warmup: Annotated[float, typer.Option(help="Share of the steps in which the rate rises")] = 0.1,
    weight_decay: Annotated[
        float, typer.Option(help="AdamW's decay of weights; not of biases and norms")
    ] = 0.01,
    clip: Annotated[float, typer.Option(help="Largest norm of the gradients")] = 1.0,
    seed: Annotated[
        int, typer.Option(help="Of weights, masks, dropout and the order of sequences")
    ] = 0,
    held_out: Annotated[
        float,
        typer.Option(help="Share of the texts that is not learned from, but asked on the way"),
    ] = 0.02,
    limit: Annotated[
        int | None,
        typer.Option(help="Read only the first so many texts of the corpus", show_default="all"),
    ] = None,
    column: Column = None,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    checkpoints: Checkpoints = None,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a new encoder to guess masked tokens, from a text corpus."""
    from headscope.model.new_model import Sizes
    from headscope.training.from_scratch import Scratch
    from headscope.training.loop import Step
    from headscope.training.pretrain import pretrain as run
    from headscope.training.settings import Settings

    settings = Settings(
        1 if epochs is None else epochs,
        batch_size,
        learning_rate,
        warmup,
        weight_decay,
        clip,
        seed,
        steps,
    )
    scratch = Scratch(Sizes(layers, heads, hidden, intermediate), tokenizer, vocabulary)
    with progress("pretrain") as update:

        def watch(step: Step) -> None:
            update(step.number, step.total, "steps")

        record = run(
            corpus=corpus,
            out=out,
            config=config,
            scratch=scratch,
            settings=settings,
            max_length=max_length,
            held_out=held_out,
            limit=limit,
            column=column,
            mask=mask,
            open_special=open_special,
            checkpoints=checkpoints,
            resume=resume,
            overwrite=overwrite,
            device=device,
            command=typed(),
            watch=watch,
            say=say,
        )
    accuracy, baseline = (
        record["moments"][-1]["metrics"]["accuracy"],
        record["baseline"]["accuracy"],
    )
    interval = (
        "" if accuracy["low"] is None else f" [{accuracy['low']:.4f}, {accuracy['high']:.4f}]"
    )
    say(
        f"masked tokens guessed right: {accuracy['value']:.4f}{interval}, the commonest token {baseline:.4f}, "
        f"{record['seconds']:.0f} s"
    )
    if is_first():
        typer.echo(out)
