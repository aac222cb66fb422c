"""headscope learn-mask: learn which positions need to attend to which."""

from __future__ import annotations

import math
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
    Labels,
    MaxLength,
    TrainLimit,
    numbers_of,
    pairs_of,
)
from headscope.config.checks import check_range
from headscope.config.command_line import command_line
from headscope.config.names import EITHER
from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    from headscope.learning.learn_mask import MaskAim

EXAMPLES = """
[bold]Examples[/bold]

headscope learn-mask ./minilm-mnli --task mnli --data glue --sparsity 0.8,0.9 --out masks

headscope learn-mask ./minilm-mnli --task mnli --data glue --soft --frozen --seeds 0,1,2 --out which-positions

headscope learn-mask rxnfp --objective mlm --corpus reactions.txt --penalty 1 --structured --per head --out masks

headscope evaluate ./minilm-mnli --task mnli --data glue --mask masks/sparsity-0.9-seed-0/mask.npz

In Python: headscope.learn_mask
"""


@app.command("learn-mask", epilog=EXAMPLES, no_args_is_help=True)
def learn_mask(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="The study to write; must not exist yet", show_default=False)
    ],
    task: Annotated[
        str | None, typer.Option(help="What the model is for, with --data", show_default=False)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="A directory with train and dev files", show_default=False)
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="mlm: guess masked tokens, with --corpus instead of a task", show_default=False
        ),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="A file of texts, for --objective", show_default=False)
    ] = None,
    penalty: Annotated[
        str | None,
        typer.Option(
            help="What wholly open attention costs, in nats; several are several runs",
            show_default=False,
        ),
    ] = None,
    sparsity: Annotated[
        str | None,
        typer.Option(
            help="So much of attention is forbidden in the end: 0.8,0.9", show_default=False
        ),
    ] = None,
    soft: Annotated[
        bool,
        typer.Option("--soft", help="Do not choose: learn how much each pair of positions matters"),
    ] = False,
    structured: Annotated[
        bool,
        typer.Option(
            "--structured", help="One number for each distance; first and last positions stay open"
        ),
    ] = False,
    without_diagonal: Annotated[
        bool, typer.Option("--without-diagonal", help="A token may never attend to itself")
    ] = False,
    per: Annotated[
        str, typer.Option(help="One mask for the model, each layer or each head")
    ] = "model",
    form: Annotated[
        str,
        typer.Option(
            help="How a mask acts while it is soft: renormalised, additive or multiplicative"
        ),
    ] = "renormalised",
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Train the mask only, not the weights")
    ] = False,
    epochs: Annotated[int, typer.Option(help="How often every example is seen")] = 3,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[float, typer.Option(help="Of the weights")] = 5e-5,
    mask_rate: Annotated[float, typer.Option(help="Learning rate of the mask")] = 0.1,
    settle: Annotated[
        float,
        typer.Option(
            help="The share of the steps after which the mask is 0 or 1, and the weights go on alone"
        ),
    ] = 0.75,
    seeds: Annotated[
        str, typer.Option(help="Of noise, dropout and order; several are several runs")
    ] = "0",
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
    columns: Columns = None,
    labels: Labels = None,
    limit: TrainLimit = None,
    max_length: MaxLength = None,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped, to the same result")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn which positions need to attend to which: a mask that is trained with the weights or alone."""
    from headscope.learning.learn_mask import MaskOptions
    from headscope.learning.learn_mask import learn_mask as run
    from headscope.training.settings import Settings

    task, data = source_of(task, data, objective, corpus)
    aims = _aims(penalty, sparsity, soft, list(numbers_of(seeds, "--seeds")))
    options = MaskOptions(
        structured,
        not without_diagonal,
        per,  # type: ignore[arg-type]
        form,
        soft,
        frozen,
        mask_rate,
        settle,
    )
    with progress(f"{model} on {task}") as update:
        run(
            model,
            task=task,
            data=data,
            out=out,
            aims=aims,
            options=options,
            settings=Settings(epochs, batch_size, learning_rate),
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
            resume=resume,
            overwrite=overwrite,
            report=report_aloud(update),
            command=typed(),
            watch=lambda name, done, total: update(done, total, f"{name}, steps"),
            say=say,
        )
    if not soft:
        from headscope.pruning.recovery import Judgement
        from headscope.tasks import task_named

        first = f"{out}/{aims[0].name}"
        the_task = task_named(
            task, columns=pairs_of(columns, "--columns"), labels=pairs_of(labels, "--labels")
        )
        split = "dev" if corpus is not None else report_on
        judgement = Judgement(
            the_task, data, select_on, split, max_length, report_limit=report_limit
        )
        line = command_line(
            "evaluate",
            model if frozen else first,
            revision=revision if frozen else None,
            **judgement.evaluate_options,
            mask=f"{first}/mask.npz",
        )
        say(f"use it: {line}")
    typer.echo(out)


def source_of(
    task: str | None, data: str | None, objective: str | None, corpus: str | None
) -> tuple[str, str]:
    """Task and data, however they were told."""
    if objective is not None and objective != "mlm":
        raise HeadscopeError(f'"{objective}" is no objective', where="--objective", expected="mlm")
    if task is not None and data is not None and objective is None and corpus is None:
        return task, data
    if objective is not None and corpus is not None and task is None and data is None:
        return "masked", corpus
    raise HeadscopeError(
        "what shall the mask be learned on?",
        where="learn-mask",
        expected="--task and --data, or --objective mlm and --corpus",
    )


def _aims(penalty: str | None, sparsity: str | None, soft: bool, seeds: list[int]) -> list[MaskAim]:
    from headscope.learning.learn_mask import MaskAim

    option, values = numbers_wanted(penalty, sparsity, soft)
    return [MaskAim(**{option: value}, seed=seed) for value in values for seed in seeds]


def numbers_wanted(
    penalty: str | None, sparsity: str | None, soft: bool
) -> tuple[str, list[float | None]]:
    """Whether there are penalties or sparsities, and which; a soft mask may have neither."""
    if (penalty is not None) + (sparsity is not None) > 1 or not (penalty or sparsity or soft):
        raise HeadscopeError("what shall open attention cost?", where="learn-mask", expected=EITHER)
    if soft and sparsity is not None:
        raise HeadscopeError(
            "a soft mask has no sparsity", where="--soft", mend="Leave --sparsity out"
        )
    option, told = ("sparsity", sparsity) if sparsity is not None else ("penalty", penalty)
    if told is None:
        return option, [None]
    try:
        values = [float(value) for value in told.split(",")]
    except ValueError as cause:
        raise HeadscopeError(
            f'"{told}" is no {option}', where=f"--{option}", expected="numbers: 0.5,0.9"
        ) from cause
    for value in values:
        if option == "sparsity":
            check_range(
                value, lambda x: 0 < x < 1, "--sparsity", "is no sparsity", "between 0 and 1"
            )
        else:
            check_range(
                value, lambda x: 0 <= x < math.inf, "--penalty", "is no penalty", "0 or more"
            )
    return option, list(values)
