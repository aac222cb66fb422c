"""headscope compare: the heads of two or more models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Column,
    MaxLength,
    Overwrite,
    Pairs,
    drawing_figures,
    progress,
    say,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope compare bert-study albert-study --out comparison

headscope compare before after --models ./before ./after --corpus texts.txt --limit 200 --out comparison

In Python: headscope.compare(["before", "after"]).write("comparison")
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def compare(
    studies: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY",
            help="Directories written by headscope analyze, two or more",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the comparison into; must not exist yet",
            show_default=False,
        ),
    ],
    models: Annotated[
        list[str],
        typer.Option(
            help="The models of two studies, in their order, of one shape and tokenizer: compare each head's maps on "
            "the same texts",
            metavar="MODEL MODEL",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer copies it
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Texts for the models, as for analyze", metavar="FILE…", show_default=False
        ),
    ] = [],  # noqa: B006
    pairs: Pairs = False,
    column: Column = None,
    limit: Annotated[
        int | None, typer.Option(help="Read only the first so many texts", show_default="all")
    ] = None,
    max_length: MaxLength = None,
    batch_size: Annotated[
        int, typer.Option(help="Sequences whose maps are held at a time; changes no result")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Of shuffles and resampling")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Compare the heads of models: layers side by side, smoothness, roles, matched heads, change by fine-tuning."""
    from headscope.analysis.compare import compare as run
    from headscope.atomic_dir import drafted
    from headscope.report.write import write_into

    with drafted(out, overwrite=overwrite) as folder:
        with progress("maps") as update:
            comparison = run(
                studies,
                models=models,
                corpus=corpus,
                pairs=pairs,
                column=column,
                limit=limit,
                max_length=max_length,
                batch_size=batch_size,
                seed=seed,
                progress=update,
            )
        comparison.record["command"] = typed()
        with drawing_figures():
            write_into(comparison, folder)
    for note in comparison.notes:
        say(f"note: {note}")
    typer.echo(out / "index.html")
