"""headscope analyze: what every head attends to over a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Column,
    Device,
    Dtype,
    MaskName,
    MaxLength,
    Model,
    OpenSpecial,
    Overwrite,
    Pairs,
    Pooling,
    Revision,
    drawing_figures,
    load_aloud,
    note_few_texts,
    progress,
    say,
    separated,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope analyze minilm --corpus wikipedia-pairs --pairs --out study

headscope analyze ./my-model --corpus reactions.txt.gz --max-length 256 --out study

headscope analyze minilm --treebank dev.conllu --frequency english --control --out study

headscope analyze opus-mt-en-fr --corpus news.tsv --pairs --statistics entropy,confidence --out study

headscope analyze rxnmapper --corpus reactions.csv --column smiles --out study

headscope analyze minilm --corpus wikipedia-pairs --pairs --lens raw,effective,norm,gradient --out study

In Python: headscope.analyze, headscope.write
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def analyze(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the study into; must not exist yet", show_default=False
        ),
    ],
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Files of text (one a line), tab-separated pairs, FASTA or tables (csv, tsv, jsonl), also in gzip; "
            "- is stdin. The name wikipedia-pairs is a corpus that comes with headscope",
            metavar="FILE…",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer copies it
    treebank: Annotated[
        list[str],
        typer.Option(
            help="Treebanks in CoNLL-U: which head shows which relation. Without --corpus its sentences are the corpus",
            metavar="FILE…",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    coreference: Annotated[
        list[str],
        typer.Option(
            help="Documents in CoNLL-2012 columns: which head finds antecedents",
            metavar="FILE…",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    frequency: Annotated[
        str | None,
        typer.Option(
            help="Which head points at rare words: english (a list that comes with headscope), a file of words and "
            "numbers, or corpus to count the texts themselves",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="Ask a twin with random weights for the relations as well"),
    ] = False,
    lenient: Annotated[
        bool,
        typer.Option(
            "--lenient", help="Leave malformed sentences and documents out, and count them"
        ),
    ] = False,
    pool: Annotated[
        str, typer.Option(help="How the rows of a word's pieces become one: mean, first or max")
    ] = "mean",
    all_rows: Annotated[
        bool,
        typer.Option(
            "--all-rows", help="Distances between heads over all rows, not a few of each text: slow"
        ),
    ] = False,
    pairs: Pairs = False,
    column: Column = None,
    lens: Annotated[
        str,
        typer.Option(
            help="What attention is seen through, with commas between: raw, effective, effective-simplex, norm, "
            "gradient. Raw is always among them"
        ),
    ] = "raw",
    statistics: Annotated[
        str | None,
        typer.Option(
            help="Only these, with commas between, such as entropy,previous", show_default="all"
        ),
    ] = None,
    max_length: MaxLength = None,
    long: Annotated[
        str,
        typer.Option(
            help="What to do with longer texts: truncate, window (cut into several), skip or error"
        ),
    ] = "truncate",
    batch_size: Annotated[int, typer.Option(help="Sequences at a time; changes no result")] = 32,
    limit: Annotated[
        int | None,
        typer.Option(help="Read only the first so many texts of the corpus", show_default="all"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the halves to choose and report on, resampling, and the twin")
    ] = 0,
    threshold: Annotated[
        list[str],
        typer.Option(
            help="Where a role begins: neighbour, positional, token, sink, broad, block, beyond, confident, "
            "relation or rare, such as positional=0.8; several with commas between, or the option again",
            metavar="NAME=VALUE",
            show_default="those of the papers",
        ),
    ] = [],  # noqa: B006
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    pooling: Pooling = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    overwrite: Overwrite = False,
) -> None:
    """What every head attends to over a corpus: tables with intervals, figures, a page."""
    from headscope.analysis.analyze import analyze as run
    from headscope.analysis.roles import read_thresholds
    from headscope.atomic_dir import drafted
    from headscope.model.attention_model import AttentionModel
    from headscope.report.write import write_into

    thresholds = read_thresholds(threshold)

    def loaded() -> AttentionModel:
        one = load_aloud(model, revision, device, dtype, None, mask, open_special, pooling)
        if one.is_encoder_decoder and not pairs:
            say("note: without --pairs (source and target) only the encoder runs")
        return one

    with drafted(out, overwrite=overwrite) as folder:
        with progress(f"{model}") as update:
            study = run(
                loaded,
                corpus=corpus,
                pairs=pairs,
                treebank=treebank,
                coreference=coreference,
                frequency=frequency,
                control=control,
                lenient=lenient,
                pool=pool,  # type: ignore[arg-type]
                all_rows=all_rows,
                column=column,
                lens=lens,
                statistics=separated(statistics),
                max_length=max_length,
                long=long,  # type: ignore[arg-type]
                batch_size=batch_size,
                limit=limit,
                seed=seed,
                thresholds=thresholds,
                progress=update,
            )
        study.record["command"] = typed()
        with drawing_figures():
            write_into(study, folder)
    data = study.record["data"] or {}
    skipped = sum(data["skipped"].values())
    say(
        f"{data['used']} of {data['read']} texts used, {data['truncated']} truncated, {skipped} skipped"
    )
    note_few_texts(study)
    typer.echo(out / "index.html")
