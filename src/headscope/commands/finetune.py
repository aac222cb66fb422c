"""headscope finetune: train a model on a task."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.finetune import FinetuneConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.progress import is_first_process


@command()
def finetune(
    model: Model,
    data: TaskData,
    config: FinetuneConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Train a model on a task and save its best epoch, in a directory that transformers can load."""
    import headscope

    with showing_progress(f"{model} on {data.task}", run) as run:
        result = headscope.finetune(model, data, config, reading=reading, run=run)
    if as_json:
        if is_first_process():
            print_json(result.record)
        return
    best, seconds = result.record["best"], result.record["seconds"]
    value = "undefined" if best["value"] is None else f"{best['value']:.4f}"
    say(f"kept epoch {best['epoch']}: {best['metric']} {value}, {seconds:.0f} s")
    if is_first_process():
        typer.echo(run.out)
