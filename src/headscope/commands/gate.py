"""headscope gate: learn which heads to keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Model,
    Overwrite,
    Pooling,
    Prompt,
    Revision,
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
    TrainLimit,
    numbers_of,
    pairs_of,
)
from headscope.commands._training import (
    FromScratch,
    Heads,
    Hidden,
    Intermediate,
    Layers,
    Resume,
    Vocabulary,
    scratch_of,
)
from headscope.config.command_line import command_line

if TYPE_CHECKING:
    from headscope.learning.gate import Aim

EXAMPLES = """
[bold]Examples[/bold]

headscope gate ./minilm-mnli --task mnli --data glue --keep 20,40 --out gated

headscope gate ./minilm-mnli --task mnli --data glue --penalty 0.002 --frozen --out gated

headscope gate opus-mt-en-fr --task translation --data multi30k --from-scratch --layers 3 --keep 12 --out gated

headscope prune gated/keep-20 --plan gated/keep-20/plan.json --out small

In Python: headscope.gate
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def gate(
    model: Model,
    task: TaskName,
    data: Data,
    out: Annotated[
        Path, typer.Option(help="The study to write; must not exist yet", show_default=False)
    ],
    keep: Annotated[
        str | None,
        typer.Option(
            help="So many heads stay; several numbers are several runs", show_default=False
        ),
    ] = None,
    penalty: Annotated[
        str | None,
        typer.Option(
            help="What an open head costs, in nats: 0.001,0.01 are two runs, encoder=0.01,cross=0.002 is one",
            show_default=False,
        ),
    ] = None,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Train the gates only, not the weights")
    ] = False,
    epochs: Annotated[int, typer.Option(help="How often every example is seen")] = 3,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Of the weights")] = 5e-5,
    gate_rate: Annotated[float, typer.Option(help="Learning rate of the gates")] = 0.1,
    settle: Annotated[
        float,
        typer.Option(
            help="The share of the steps after which gates are 0 or 1, and the weights go on alone"
        ),
    ] = 0.75,
    from_scratch: FromScratch = False,
    layers: Layers = None,
    heads: Heads = None,
    hidden: Hidden = None,
    intermediate: Intermediate = None,
    vocabulary: Vocabulary = None,
    select_on: Annotated[
        str,
        typer.Option(
            help="The split that is looked at after every epoch, at most 500 examples of it"
        ),
    ] = "dev:even",
    report_on: Annotated[str, typer.Option(help="The split that is reported on")] = "dev:odd",
    report_limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to report on, evenly spread", show_default="all"),
    ] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            help="A study of analyze of this model: name what the heads that stay do",
            show_default="none",
        ),
    ] = None,
    columns: Columns = None,
    labels: Labels = None,
    limit: TrainLimit = None,
    max_length: MaxLength = None,
    seed: Annotated[
        int, typer.Option(help="Of noise, dropout, new weights and the order of examples")
    ] = 0,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn which heads to keep: a gate on every head, trained with the weights or alone, becomes a plan to cut by."""
    from headscope.learning.gate import GateOptions
    from headscope.learning.gate import gate as run
    from headscope.training.settings import Settings

    aims = _aims(keep, penalty)
    options = GateOptions(frozen, gate_rate, settle)
    settings = Settings(epochs, batch_size, learning_rate, seed=seed)
    with progress(f"{model} on {task}") as update:
        study = run(
            model,
            task=task,
            data=data,
            out=out,
            aims=aims,
            options=options,
            settings=settings,
            select_on=select_on,
            report_on=report_on,
            report_limit=report_limit,
            columns=pairs_of(columns, "--columns"),
            labels=pairs_of(labels, "--labels"),
            max_length=max_length,
            limit=limit,
            device=device,
            pooling=pooling,
            prompt=prompt,
            revision=revision,
            scratch=scratch_of(from_scratch, layers, heads, hidden, intermediate, vocabulary),
            roles=roles,
            resume=resume,
            overwrite=overwrite,
            report=report_aloud(update),
            command=typed(),
            watch=lambda name, done, total: update(done, total, f"{name}, steps"),
            say=say,
        )
    front = study.tables["front"]
    closed = front[front["removed"] > 0]
    if len(closed):
        first = f"{out}/{closed['aim'].iloc[0]}"
        whole = model if frozen else first
        say(f"cut it: {command_line('prune', whole, plan=f'{first}/plan.json', out='small')}")
    else:
        say(f"nothing to cut: all {front['left'].max()} heads stay")
    typer.echo(out)


def _aims(keep: str | None, penalty: str | None) -> list[Aim]:
    from headscope.learning.gate import Aim

    if keep is not None:
        return [Aim(keep=number) for number in numbers_of(keep, "--keep")]
    assert penalty is not None
    if "=" in penalty:
        return [
            Aim(
                penalty={
                    stack: float(price) for stack, price in pairs_of(penalty, "--penalty").items()
                }
            )
        ]
    return [Aim(penalty=float(price)) for price in penalty.split(",")]
