"""headscope finetune: train a model on a task."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, say
from headscope.config.finetune import FinetuneConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.progress import is_first_process, progress

EXAMPLES = """
[bold]Examples[/bold]

headscope finetune minilm --task mnli --data glue --out minilm-mnli

headscope finetune minilm --task cola --data cola --epochs 5 --learning-rate 5e-5 --out minilm-cola

headscope finetune minilm --task mnli --data glue --fix '*.0-6=raganato' --out fixed-mnli

headscope finetune opus-mt-en-fr --task translation --data multi30k --from-scratch --layers 3 --out small-mt

torchrun --nproc-per-node 2 -m headscope finetune minilm --task mnli --data glue --out minilm-mnli

In Python: headscope.finetune
"""


@command(EXAMPLES, group="Models")
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
