"""headscope probe: how much syntax there is in the attention of all heads together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Dtype,
    MaxLength,
    Model,
    Overwrite,
    Revision,
    load_aloud,
    progress,
    say,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope probe minilm --treebank train.conllu --test dev.conllu --out probes

headscope probe ./my-model --treebank all.conllu --vectors glove.6B.100d.txt --out probes

In Python: headscope.probe
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def probe(
    model: Model,
    treebank: Annotated[
        list[str],
        typer.Option(
            help="Treebanks in CoNLL-U to train the probes on", metavar="FILE…", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the tables into; must not exist yet", show_default=False
        ),
    ],
    test: Annotated[
        list[str],
        typer.Option(
            help="Treebanks to score the probes on",
            metavar="FILE…",
            show_default="one half of --treebank; the other is trained on",
        ),
    ] = [],  # noqa: B006 - typer copies it
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Word vectors, as word2vec and GloVe write them",
            metavar="FILE",
            show_default="the model's embeddings",
        ),
    ] = None,
    dimensions: Annotated[
        int, typer.Option(help="Reduce the word vectors to so many, if they have more")
    ] = 100,
    epochs: Annotated[int, typer.Option(help="How often the probes see the sentences")] = 6,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave malformed sentences out, and count them")
    ] = False,
    max_length: MaxLength = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Read only the first so many sentences of each", show_default="all"),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            help="Megabytes of maps to keep; others are computed again. Changes no result"
        ),
    ] = 1024,
    seed: Annotated[
        int, typer.Option(help="Of halves, order, hidden layer, resampling, and the twin")
    ] = 0,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    overwrite: Overwrite = False,
) -> None:
    """Parse with attention weights alone, beside baselines: how much syntax all heads hold together."""
    from headscope.analysis.probe import probe as run
    from headscope.atomic_dir import drafted
    from headscope.report.write import write_into

    with drafted(out, overwrite=overwrite) as folder:
        with progress(f"{model}") as update:
            found = run(
                lambda: load_aloud(model, revision, device, dtype),
                treebank,
                test=test,
                vectors=vectors,
                dimensions=dimensions,
                epochs=epochs,
                lenient=lenient,
                max_length=max_length,
                limit=limit,
                memory=memory * 2**20,
                seed=seed,
                progress=update,
            )
        found.record["command"] = typed()
        write_into(found, folder)
    for part in ("train", "test"):
        counts = found.record[part]
        say(
            f"{part}: {counts['used']} of {counts['read']} sentences used, {sum(counts['skipped'].values())} skipped"
        )
    typer.echo(found.table.to_string(index=False, float_format="{:.3f}".format))
