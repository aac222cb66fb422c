"""headscope fix: let heads attend by fixed patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Dtype,
    Model,
    Overwrite,
    Pooling,
    Prompt,
    Revision,
    load_aloud,
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
    numbers_of,
    pairs_of,
)
from headscope.config.command_line import command_line

EXAMPLES = """
[bold]Examples[/bold]

headscope fix minilm --task stsb --data stsb_dev.tsv --out fixed

headscope fix opus-mt-en-fr --task translation --data val.en,val.fr --heads 'encoder.*.*' --keep-metric 0.99 --out fixed

headscope fix minilm --task stsb --data stsb_dev.tsv --patterns '*.0-6=raganato' --out fixed

In Python: headscope.fix
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def fix(
    model: Model,
    task: TaskName,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the model into; must not exist yet", show_default=False
        ),
    ],
    heads: Annotated[
        str | None,
        typer.Option(
            help="Only these heads, as in encoder.*.*", show_default="all of self-attention"
        ),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(
            help="These patterns, as in 3.2=previous,4.*=first or *.0-6=raganato, or a file of such lines",
            show_default="the nearest of each head",
        ),
    ] = None,
    keep_metric: Annotated[
        float | None,
        typer.Option(
            help="Fix only as many heads as leave this share of the metric, as in 0.99",
            show_default="all",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Report these numbers of fixed heads, as in 3,10,20",
            show_default="12, evenly spread",
        ),
    ] = None,
    select_on: Annotated[
        str, typer.Option(help="The split that patterns and order are chosen on")
    ] = "dev:even",
    report_on: Annotated[str, typer.Option(help="The split that is reported on")] = "dev:odd",
    limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to choose on, evenly spread", show_default="all"),
    ] = None,
    report_limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to report on, evenly spread", show_default="all"),
    ] = None,
    columns: Columns = None,
    labels: Labels = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = 32,
    seed: Annotated[int, typer.Option(help="Of the order of examples")] = 0,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Let heads attend by fixed patterns, see what is lost, and save the model without their queries and keys."""
    from headscope.model.attention_model import AttentionModel
    from headscope.model.model_card import times_as_fast
    from headscope.pruning.fix import SIZES, FixOptions, fix_into
    from headscope.pruning.recovery import Judgement
    from headscope.tasks import task_named

    the_task = task_named(
        task, columns=pairs_of(columns, "--columns"), labels=pairs_of(labels, "--labels")
    )
    judgement = Judgement(
        the_task, data, select_on, report_on, max_length, batch_size, report_limit
    )
    options = FixOptions(
        heads,
        patterns,
        keep_metric,
        numbers_of(sizes, "--sizes") if sizes else SIZES,
        limit=limit,
        seed=seed,
    )

    def loaded(wanted_class: str) -> AttentionModel:
        return load_aloud(
            model, revision, device, dtype, wanted_class, pooling=pooling, prompt=prompt
        )

    with progress(model) as update:
        told = fix_into(
            out,
            loaded,
            judgement,
            options,
            report=report_aloud(update),
            command=typed(),
            resume=resume,
            overwrite=overwrite,
            progress=update,
            say=say,
        )
    before, after = told["speed"]
    parameters = " to ".join(f"{one['parameters'] / 1e6:.2f}" for one in (before, after))
    say(
        f"{len(told['patterns'])} of {before['heads']} heads fixed, {parameters} million parameters, "
        f"{times_as_fast(after['ratio'], after['low'], after['high'])} ({told['timed']})"
    )
    say(f"check it: {command_line('evaluate', out, **judgement.evaluate_options)}")
    typer.echo(out)
