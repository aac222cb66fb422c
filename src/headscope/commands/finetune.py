"""headscope finetune: train a model on a task."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, say
from headscope.config.finetune import FinetuneConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.progress import is_first_process, progress


@command()
def finetune(
    model: Model, data: TaskData, config: FinetuneConfig, reading: Reading, run: Run
) -> None:
    """Train a model on a task and keep its best epoch, in a directory that transformers can load."""
    import headscope

    with progress(f"{model} on {data.task}") as update:
        result = headscope.finetune(
            model, data, config, reading=reading, run=replace(run, progress=update)
        )
    best, seconds = result.record["best"], result.record["seconds"]
    value = "undefined" if best["value"] is None else f"{best['value']:.4f}"
    say(f"kept epoch {best['epoch']}: {best['metric']} {value}, {seconds:.0f} s")
    if is_first_process():
        typer.echo(run.out)
