"""headscope knock-out: what every head's attention does, by taking parts of it away."""

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
    Revision,
    drawing_figures,
    load_aloud,
    note_few_texts,
    progress,
    separated,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope knock-out minilm --corpus sentences.txt --limit 16 --max-length 32 --out study

headscope knock-out minilm --corpus wikipedia-pairs --column a --to separator --max-length 32 --out study

In Python: headscope.knock_out, headscope.KnockOut (the edit), headscope.token_map
"""


@app.command("knock-out", epilog=EXAMPLES, no_args_is_help=True)
def knock_out(
    model: Model,
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Files of text (one a line), tab-separated pairs, FASTA or tables (csv, tsv, jsonl); wikipedia-pairs "
            "comes with headscope",
            metavar="FILE…",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The study to write, or one of the same model to add to", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            help="The tokens that heads do not see: special, classification, separator, punctuation, content"
        ),
    ] = "special",
    pairs: Pairs = False,
    column: Column = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            help="Of the maps of value zeroing, with commas between",
            show_default="all that make sense",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            help="Texts to take; each is run once for every head and token, so that few are much work"
        ),
    ] = 16,
    max_length: MaxLength = None,
    seed: Annotated[int, typer.Option(help="Of the tokens that are drawn for comparison")] = 0,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    overwrite: Overwrite = False,
) -> None:
    """Take values and edges of attention away, head by head: how far does that turn the tokens' states?"""
    from headscope.ablation.knock_out import knock_out as run
    from headscope.atomic_dir import drafted
    from headscope.model.attention_model import AttentionModel
    from headscope.report.write import write_into
    from headscope.study.run_record import check_same_model
    from headscope.study.study_dir import to_add_to

    there = to_add_to(out, "knock_out", overwrite=overwrite)

    def loaded() -> AttentionModel:
        one = load_aloud(model, revision, device, dtype, None, mask, open_special)
        if there is not None:
            check_same_model(one, there, out)
        return one

    with drafted(out, overwrite=overwrite or there is not None) as folder:
        with progress(model) as update:
            study = run(
                loaded,
                corpus=corpus,
                pairs=pairs,
                column=column,
                to=to,
                statistics=separated(statistics),
                limit=limit,
                max_length=max_length,
                seed=seed,
                progress=update,
            )
        study.record["command"] = typed()
        study = study if there is None else there.joined(study)
        with drawing_figures():
            write_into(study, folder)
    note_few_texts(study)
    typer.echo(out / "index.html")
