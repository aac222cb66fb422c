"""headscope film: heads over a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Column,
    Device,
    MaxLength,
    OpenSpecial,
    Overwrite,
    Pairs,
    note_few_texts,
    progress,
    report_aloud,
    say,
    separated,
    typed,
)
from headscope.commands._training import Resume

EXAMPLES = """
[bold]Examples[/bold]

headscope pretrain --corpus wiki.txt.gz --checkpoints 12 --out small-bert

headscope film small-bert --corpus wiki.txt.gz --limit 500 --out over-training

headscope film small-mt --corpus multi30k/dev.tsv --pairs --statistics entropy,confidence,previous --out over-training

In Python: headscope.film
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def film(
    trained: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A model that was trained with --checkpoints N, by pretrain or finetune",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The study to write; must not exist yet", show_default=False)
    ],
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Files of text (one a line), tab-separated pairs, FASTA or tables (csv, tsv, jsonl), also in gzip",
            metavar="FILE…",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer copies it
    treebank: Annotated[
        list[str],
        typer.Option(
            help="Treebanks in CoNLL-U: which head shows which relation",
            metavar="FILE…",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    pairs: Pairs = False,
    column: Column = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            help="Only these, with commas between, such as entropy,previous", show_default="all"
        ),
    ] = None,
    max_length: MaxLength = None,
    batch_size: Annotated[int, typer.Option(help="Sequences at a time; changes no result")] = 32,
    limit: Annotated[
        int | None,
        typer.Option(help="Read only the first so many texts of the corpus", show_default="all"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the halves to choose and report on, and of resampling")
    ] = 0,
    threshold: Annotated[
        list[str],
        typer.Option(
            help="Where a role begins, as for analyze, such as positional=0.8",
            metavar="NAME=VALUE",
            show_default="those of the papers",
        ),
    ] = [],  # noqa: B006
    mask: Annotated[
        str | None,
        typer.Option(
            "--mask",
            help="As for analyze; dense: none",
            show_default="the mask of the training, if any",
        ),
    ] = None,
    open_special: OpenSpecial = False,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """What every head does at each checkpoint of a training: statistics and roles by step, figures, a page."""
    from headscope.analysis.checkpoint_analysis import film as run
    from headscope.analysis.roles import read_thresholds

    thresholds = read_thresholds(threshold)
    with progress(f"{trained}") as update:
        study = run(
            trained,
            out=out,
            corpus=corpus,
            pairs=pairs,
            column=column,
            treebank=treebank,
            statistics=separated(statistics),
            max_length=max_length,
            batch_size=batch_size,
            limit=limit,
            seed=seed,
            thresholds=thresholds,
            mask=mask,
            open_special=open_special,
            device=device,
            resume=resume,
            overwrite=overwrite,
            report=report_aloud(update),
            command=typed(),
            progress=update,
            say=say,
        )
    note_few_texts(study)
    typer.echo(out / "index.html")
