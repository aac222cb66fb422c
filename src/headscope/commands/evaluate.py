"""headscope evaluate: how good a model is at a task."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headscope.commands import app
from headscope.commands._options import (
    Device,
    Dtype,
    MaskName,
    Model,
    OpenSpecial,
    Pooling,
    Prompt,
    Revision,
    load_aloud,
    progress,
    say,
)
from headscope.commands._tasks import (
    BatchSize,
    Columns,
    Data,
    Labels,
    Limit,
    MaxLength,
    Split,
    TaskName,
    pairs_of,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope evaluate minilm --task stsb --data stsb_dev.tsv

headscope evaluate ./minilm-mnli --task mnli --data glue --split dev

headscope evaluate opus-mt-en-fr --task translation --data val.en,val.fr --limit 200

In Python: headscope.evaluate
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def evaluate(
    model: Model,
    task: TaskName,
    data: Data,
    split: Split = "dev",
    columns: Columns = None,
    labels: Labels = None,
    limit: Limit = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = 32,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table")
    ] = False,
) -> None:
    """How good a model is at a task: every metric and the loss, with intervals."""
    from headscope.ablation.evaluate import evaluate as run
    from headscope.report.run_facts import ENOUGH_TEXTS

    with progress(model) as update:
        found = run(
            lambda wanted: load_aloud(
                model, revision, device, dtype, wanted, mask, open_special, pooling, prompt
            ),
            task=task,
            data=data,
            split=split,
            columns=pairs_of(columns, "--columns"),
            labels=pairs_of(labels, "--labels"),
            max_length=max_length,
            limit=limit,
            batch_size=batch_size,
            progress=update,
        )
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for name, metric in found["metrics"].items():
        if metric["value"] is None:
            typer.echo(f"{name:12} undefined on these examples")
        else:
            between = (
                "" if metric["low"] is None else f"  [{metric['low']:.4f}, {metric['high']:.4f}]"
            )
            typer.echo(f"{name:12} {metric['value']:.4f}{between}")
    of = f" of {found['available']:,}" if found["count"] < found["available"] else ""
    typer.echo(f"{'examples':12} {found['count']:,}{of}")
    if (reading := found["pooling"]) is not None:
        stated_by = reading["stated_by"] or "the default: no file states it"
        typer.echo(f"{'pooling':12} {reading['pooling'] or 'mean'} ({stated_by})")
    if found["count"] < ENOUGH_TEXTS:
        say(
            f"note: only {found['count']} examples: the intervals are too narrow. Take {ENOUGH_TEXTS} or more"
        )
