"""headscope prune: cut heads and save a smaller model."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.commands import app
from headscope.commands._options import (
    Device,
    Dtype,
    MaxLength,
    Model,
    Overwrite,
    Revision,
    load_aloud,
    progress,
    say,
    typed,
)
from headscope.commands._tasks import BatchSize, Columns, Labels, pairs_of

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
        Path | None, typer.Option(help="The directory to write the model into; must not exist yet", show_default=False)
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(help="These heads, as in 3.2,4.*; or a number: search for so many", show_default=False),
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan written by an earlier run", show_default=False)] = None,
    sparsity: Annotated[
        float | None, typer.Option(help="Search for this share of all heads", show_default=False)
    ] = None,
    keep_metric: Annotated[
        float | None,
        typer.Option(help="Search for the most heads that leave this share of the metric, as in 0.99"),
    ] = None,
    speedup: Annotated[
        float | None, typer.Option(help="Search until the model should be so many times faster, as in 1.2")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="The task to search for, and to report on: mnli, stsb, retrieval …")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Its data, as for headscope evaluate")] = None,
    how: Annotated[str, typer.Option("--search", help="beam, greedy, iterative, rank or random")] = "beam",
    by: Annotated[
        str,
        typer.Option(help="What rank and iterative go by: gradient, gradient-absolute, ablation, confidence, norm …"),
    ] = "gradient",
    select_on: Annotated[str, typer.Option(help="The split that is chosen and repaired on")] = "dev:even",
    report_on: Annotated[str, typer.Option(help="The split that is reported on")] = "dev:odd",
    objective: Annotated[
        str | None, typer.Option(help="What a search goes by: loss or metric", show_default="what the task prefers")
    ] = None,
    at_least: Annotated[int, typer.Option(help="So many heads stay in every layer")] = 0,
    step: Annotated[float, typer.Option(help="The share of heads that iterative removes at a time")] = 0.1,
    width: Annotated[int, typer.Option(help="The sets that a beam keeps")] = 3,
    expansion: Annotated[int, typer.Option(help="The heads that a beam tries to add to its best set")] = 12,
    draws: Annotated[int, typer.Option(help="Random orders")] = 3,
    limit: Annotated[
        int | None, typer.Option(help="Only so many examples to choose on, evenly spread", show_default="all")
    ] = None,
    repair: Annotated[
        str | None, typer.Option(help="Mend without training: fold, refit, or both with a comma", show_default="none")
    ] = None,
    recover: Annotated[int, typer.Option(help="Epochs of training after the cut, on the train split")] = 0,
    recover_steps: Annotated[
        bool, typer.Option("--recover-steps", help="With --search iterative: train after every step, not at the end")
    ] = False,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="Train with the whole model's answers beside what is right")
    ] = False,
    learning_rate: Annotated[float, typer.Option(help="Of that training")] = 5e-5,
    form: Annotated[str, typer.Option(help="small, plain or onnx")] = "small",
    columns: Columns = None,
    labels: Labels = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = 32,
    seed: Annotated[int, typer.Option(help="Of the order of examples and of the search")] = 0,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Cut attention heads and save a smaller model: these heads, or those that a task can do without."""
    from headscope.drafts import drafted
    from headscope.errors import HeadscopeError
    from headscope.model.attention_model import AttentionModel
    from headscope.model.manifest import NAME as MANIFEST
    from headscope.model.saving import check_form
    from headscope.model.surgery import check_cut, read_heads, removed_heads
    from headscope.pruning.plan import Plan, read_plan
    from headscope.pruning.repair import names
    from headscope.pruning.target import Target
    from headscope.report.write import write_report
    from headscope.study.journal import NAME, Journal
    from headscope.study.prune import KEPT, Judgement, Mending, carry_out
    from headscope.study.search import Search, search
    from headscope.study.stepwise import STEPS, in_steps
    from headscope.tasks import task_named

    check_form(form)
    if (out is None) == (not dry_run):
        raise HeadscopeError("nowhere to write it" if out is None else "a dry run writes nothing", where="--out")
    if (task is None) != (data is None):
        raise HeadscopeError("a task and its data belong together", where="--task", expected="--task and --data")
    named = heads is not None and not heads.isdigit()
    count = int(heads) if heads is not None and heads.isdigit() else None
    target = None
    if plan is None and not named:
        target = Target(count, sparsity, keep_metric, speedup)
        if task is None or data is None:
            raise HeadscopeError("a search needs a task", where="--task", mend="Add --task NAME and --data PATH")
    elif (plan is not None and heads is not None) or any(one is not None for one in (sparsity, keep_metric, speedup)):
        raise HeadscopeError("the heads are given already", where="prune", expected="one way to say what to remove")
    if recover_steps and not (how == "iterative" and recover and target is not None):
        raise HeadscopeError(
            "there are no steps to train between",
            where="--recover-steps",
            expected="--search iterative and --recover N",
        )
    mending = Mending(names(repair), recover, teacher, learning_rate, seed)
    renamed, called = pairs_of(labels, "--labels"), pairs_of(columns, "--columns")
    the_task = None if task is None else task_named(task, columns=called, labels=renamed)

    def loaded(wanted: str | None) -> AttentionModel:
        return load_aloud(model, revision=revision, device=device, dtype=dtype, model_class=wanted)

    whole = loaded(None if the_task is None else the_task.model_class)
    if the_task is not None:
        the_task.check(whole)

    opened: list[Journal] = []

    def opened_journal(folder: Path, header: dict[str, Any]) -> Journal:
        opened.append(Journal(folder, header, resume=resume))
        return opened[0]

    def planned(folder: Path | None) -> tuple[Plan, Search | None]:
        if plan is not None:
            return read_plan(plan, whole), None
        if named:
            assert heads is not None
            return Plan.of(whole, read_heads(whole, heads)), None
        assert the_task is not None
        assert data is not None
        assert target is not None
        with progress(model) as update:
            found = search(
                whole,
                task=the_task,
                data=data,
                target=target,
                how=how,
                by=by,
                select_on=select_on,
                report_on=report_on,
                objective=objective,
                at_least=at_least,
                step=step,
                width=width,
                expansion=expansion,
                draws=draws,
                limit=limit,
                max_length=max_length,
                batch_size=batch_size,
                seed=seed,
                journal=None if folder is None else partial(opened_journal, folder),
                progress=update,
                say=say,
            )
        return found.plan, found

    if out is None:
        chosen, _ = planned(None)
        check_cut(whole, chosen.heads)
        typer.echo(json.dumps(chosen.chosen | {"heads": str(chosen.heads)}) if as_json else str(chosen.heads))
        return
    if named:
        check_cut(whole, planned(None)[0].heads)  # before anything is written
    with drafted(out, overwrite=overwrite, resume=resume, kept=[NAME, *KEPT, *STEPS], record=MANIFEST) as folder:
        judgement = (
            None
            if the_task is None or data is None
            else Judgement(the_task, data, select_on, report_on, max_length, batch_size)
        )
        already: AttentionModel | None = None
        try:
            if recover_steps:
                assert judgement is not None
                assert target is not None
                already = in_steps(
                    whole,
                    target,
                    folder,
                    judgement,
                    mending,
                    by=by,
                    step=step,
                    at_least=at_least,
                    limit=limit,
                    say=say,
                )
                chosen, found = Plan.of(whole, removed_heads(already), {"in_steps": step, "by": by}), None
            else:
                chosen, found = planned(folder)
        except HeadscopeError:
            if opened:  # another target is another run: nothing to go on with
                (folder / NAME).unlink(missing_ok=True)
            raise
        say(f"cutting {len(chosen.heads)} heads: {chosen.heads}")
        told = carry_out(
            whole,
            chosen,
            folder,
            form=form,
            judgement=judgement,
            mending=mending if already is None else replace(mending, recover=0),
            already=already,
            study=None if found is None else found.study,
            command=typed(),
            say=say,
        )
        if found is not None:
            write_report(found.study, folder / "study")
        (folder / NAME).unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps(told, ensure_ascii=False))
        return
    before, after = told["speed"]
    say(
        f"{before['heads']} to {after['heads']} heads, {before['parameters'] / 1e6:.2f} to "
        f"{after['parameters'] / 1e6:.2f} million parameters, {1 / after['ratio']:.2f} times as fast (8 x 64 tokens)"
    )
    if judgement is not None:
        say(f"check it: headscope evaluate {out} --task {task} --data {data} --split {report_on}")
    typer.echo(out)
