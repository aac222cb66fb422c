"""headscope prune: cut heads and save a smaller model."""

from __future__ import annotations

import json
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
from headscope.commands._tasks import BatchSize, Columns, Labels, MaxLength, numbers_of, pairs_of
from headscope.config.command_line import command_line

EXAMPLES = """
[bold]Examples[/bold]

headscope prune minilm --heads '3.2,4.*' --out small

headscope prune minilm --task similarity --data stsb_dev.tsv --keep-metric 0.99 --search beam --out small

headscope prune ./minilm-mnli --task mnli --data glue --heads 20 --repair fold,refit --recover 1 --teacher --out small

headscope prune minilm --plan small/plan.json --form onnx --out graph

In Python: headscope.prune, headscope.search
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def prune(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The directory to write the model into; must not exist yet", show_default=False
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="These heads, as in 3.2,4.*; or a number: search for so many", show_default=False
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan written by an earlier run", show_default=False)
    ] = None,
    sparsity: Annotated[
        float | None, typer.Option(help="Search for this share of all heads", show_default=False)
    ] = None,
    keep_metric: Annotated[
        float | None,
        typer.Option(
            help="Search for the most heads that leave this share of the metric, as in 0.99"
        ),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(help="Search until the model should be so many times faster, as in 1.2"),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="The task to search for, and to report on: mnli, stsb, retrieval …"),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Its data, as for headscope evaluate")] = None,
    how: Annotated[
        str, typer.Option("--search", help="beam, greedy, iterative, rank or random")
    ] = "beam",
    by: Annotated[
        str,
        typer.Option(
            help="What rank and iterative go by: gradient-second, relevance, ablation, confidence, norm …"
        ),
    ] = "gradient-second",
    rules: Annotated[
        str, typer.Option(help="Of relevance, with --by relevance: voita or attnlrp")
    ] = "voita",
    select_on: Annotated[
        str, typer.Option(help="The split that is chosen and repaired on")
    ] = "dev:even",
    report_on: Annotated[str, typer.Option(help="The split that is reported on")] = "dev:odd",
    objective: Annotated[
        str | None,
        typer.Option(
            help="What a search goes by: loss or metric", show_default="what the task prefers"
        ),
    ] = None,
    at_least: Annotated[int, typer.Option(help="So many heads stay in every layer")] = 0,
    among: Annotated[
        str | None,
        typer.Option(help="Only these heads may go, as in encoder.*.*", show_default="all"),
    ] = None,
    step: Annotated[
        float, typer.Option(help="The share of heads that iterative removes at a time")
    ] = 0.1,
    width: Annotated[int, typer.Option(help="The sets that a beam keeps")] = 3,
    expansion: Annotated[
        int, typer.Option(help="The heads that a beam tries to add to its best set")
    ] = 12,
    draws: Annotated[int, typer.Option(help="Random orders")] = 3,
    limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to choose on, evenly spread", show_default="all"),
    ] = None,
    report_limit: Annotated[
        int | None,
        typer.Option(help="Only so many examples to report on, evenly spread", show_default="all"),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Report these numbers of removed heads, as in 3,10,20,30",
            show_default="12, evenly spread",
        ),
    ] = None,
    try_repairs: Annotated[
        str | None,
        typer.Option(
            help="Report each of them mended too: fold,refit,fold+refit", show_default="none"
        ),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option(
            help="Mend without training: fold, refit, or both with a comma", show_default="none"
        ),
    ] = None,
    recover: Annotated[
        int, typer.Option(help="Epochs of training after the cut, on the train split")
    ] = 0,
    recover_steps: Annotated[
        bool,
        typer.Option(
            "--recover-steps",
            help="With --search iterative: train after every step, not at the end",
        ),
    ] = False,
    teacher: Annotated[
        bool,
        typer.Option("--teacher", help="Train with the whole model's answers beside what is right"),
    ] = False,
    learning_rate: Annotated[float, typer.Option(help="Of that training")] = 5e-5,
    form: Annotated[str, typer.Option(help="small, plain or onnx")] = "small",
    columns: Columns = None,
    labels: Labels = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = 32,
    seed: Annotated[int, typer.Option(help="Of the order of examples and of the search")] = 0,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan, its size, what it would be measured on; write nothing"
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut attention heads and save a smaller model: these heads, or those that a task can do without."""
    from headscope.config.checks import repair_names
    from headscope.config.search import FRONT, Mending, SearchOptions
    from headscope.model.attention_model import AttentionModel
    from headscope.model.model_card import times_as_fast
    from headscope.model.saving import check_form
    from headscope.pruning.prune import prune_into, shown
    from headscope.pruning.prune_request import Wanted
    from headscope.pruning.recovery import Judgement
    from headscope.tasks import task_named

    check_form(form)
    wanted = Wanted.of(heads, plan, sparsity, keep_metric, speedup, steps=recover_steps)
    options = SearchOptions(
        how=how,
        by=by,
        rules=rules,  # type: ignore[arg-type]
        objective=objective,
        at_least=at_least,
        among=among,
        step=step,
        width=width,
        expansion=expansion,
        draws=draws,
        limit=limit,
        seed=seed,
        repairs=tuple(try_repairs.split(",")) if try_repairs else (),
        sizes=numbers_of(sizes, "--sizes") if sizes else FRONT,
    )
    mending = Mending(repair_names(repair), recover, teacher, learning_rate, seed)
    judgement = None
    if task is not None and data is not None:
        the_task = task_named(
            task, columns=pairs_of(columns, "--columns"), labels=pairs_of(labels, "--labels")
        )
        judgement = Judgement(
            the_task, data, select_on, report_on, max_length, batch_size, report_limit
        )

    def loaded(wanted_class: str | None) -> AttentionModel:
        return load_aloud(
            model, revision, device, dtype, wanted_class, pooling=pooling, prompt=prompt
        )

    with progress(model) as update:
        if out is None:
            paper = shown(loaded, wanted, judgement, options, form=form, progress=update, say=say)
            typer.echo(
                json.dumps(paper.told(), ensure_ascii=False)
                if as_json
                else "\n".join(paper.lines())
            )
            return
        told = prune_into(
            out,
            loaded,
            wanted,
            form=form,
            judgement=judgement,
            mending=mending,
            options=options,
            report=report_aloud(update),
            command=typed(),
            resume=resume,
            overwrite=overwrite,
            progress=update,
            say=say,
        )
    if as_json:
        typer.echo(json.dumps(told, ensure_ascii=False))
        return
    before, after = told["speed"]
    if form == "plain":
        say(
            f"{before['heads']} to {after['heads']} heads; this form keeps the size and the speed of the whole model"
        )
    else:
        parameters = " to ".join(f"{one['parameters'] / 1e6:.2f}" for one in (before, after))
        faster = f"{times_as_fast(after['ratio'], after['low'], after['high'])} ({told['timed']})"
        say(
            f"{before['heads']} to {after['heads']} heads, {parameters} million parameters, {faster}"
        )
    if judgement is not None and form != "onnx":
        say(f"check it: {command_line('evaluate', out, **judgement.evaluate_options)}")
    typer.echo(out)
