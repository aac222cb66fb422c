"""headscope finetune: train a model on a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    MaskName,
    Model,
    OpenSpecial,
    Overwrite,
    Pooling,
    Prompt,
    Revision,
    is_first,
    progress,
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
    TrainLimit,
    pairs_of,
)
from headscope.commands._training import (
    Checkpoints,
    FromScratch,
    Heads,
    Hidden,
    Intermediate,
    Layers,
    Resume,
    Vocabulary,
    scratch_of,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope finetune minilm --task mnli --data glue --out minilm-mnli

headscope finetune minilm --task cola --data cola --epochs 5 --learning-rate 5e-5 --out minilm-cola

headscope finetune minilm --task mnli --data glue --fix '*.0-6=raganato' --out fixed-mnli

headscope finetune opus-mt-en-fr --task translation --data multi30k --from-scratch --layers 3 --out small-mt

torchrun --nproc-per-node 2 -m headscope finetune minilm --task mnli --data glue --out minilm-mnli

In Python: headscope.finetune
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def finetune(
    model: Model,
    task: TaskName,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            help="The directory to write the model into; must not exist yet", show_default=False
        ),
    ],
    epochs: Annotated[int, typer.Option(help="How often every example is seen")] = 3,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Highest rate, after the warm-up")] = 1e-4,
    warmup: Annotated[float, typer.Option(help="Share of the steps in which the rate rises")] = 0.1,
    weight_decay: Annotated[
        float, typer.Option(help="AdamW's decay of weights; not of biases and norms")
    ] = 0.01,
    clip: Annotated[float, typer.Option(help="Largest norm of the gradients")] = 1.0,
    seed: Annotated[
        int, typer.Option(help="Of new weights, dropout and the order of examples")
    ] = 0,
    columns: Columns = None,
    labels: Labels = None,
    limit: TrainLimit = None,
    max_length: MaxLength = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A model whose answers are imitated too: the one this was cut from",
            show_default="none",
        ),
    ] = None,
    fix: Annotated[
        str | None,
        typer.Option(
            help="Heads that attend by a fixed pattern, without queries and keys: encoder.*.0-6=raganato, "
            "3.2=previous,4.*=first, or a file of such lines",
            show_default="none",
        ),
    ] = None,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    from_scratch: FromScratch = False,
    layers: Layers = None,
    heads: Heads = None,
    hidden: Hidden = None,
    intermediate: Intermediate = None,
    vocabulary: Vocabulary = None,
    label_smoothing: Annotated[
        float,
        typer.Option(help="Share of every target that is spread over all tokens, for translation"),
    ] = 0.0,
    checkpoints: Checkpoints = None,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a model on a task and keep the best of its epochs, in a directory that loads anywhere."""
    from headscope.training.finetune import finetune as run
    from headscope.training.loop import Step
    from headscope.training.settings import Settings

    scratch = scratch_of(from_scratch, layers, heads, hidden, intermediate, vocabulary)
    settings = Settings(epochs, batch_size, learning_rate, warmup, weight_decay, clip, seed)
    with progress(f"{model} on {task}") as update:

        def watch(step: Step) -> None:
            update(step.number, step.total, "steps")

        record = run(
            model,
            task=task,
            data=data,
            out=out,
            settings=settings,
            columns=pairs_of(columns, "--columns"),
            labels=pairs_of(labels, "--labels"),
            max_length=max_length,
            limit=limit,
            resume=resume,
            overwrite=overwrite,
            device=device,
            pooling=pooling,
            prompt=prompt,
            revision=revision,
            teacher=teacher,
            mask=mask,
            open_special=open_special,
            fix=fix,
            scratch=scratch,
            label_smoothing=label_smoothing,
            checkpoints=checkpoints,
            command=typed(),
            watch=watch,
            say=say,
        )
    best = record["best"]
    value = "undefined" if best["value"] is None else f"{best['value']:.4f}"
    say(f"kept epoch {best['epoch']}: {best['metric']} {value}, {record['seconds']:.0f} s")
    if is_first():
        typer.echo(out)
