"""headscope importance: which heads matter for a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Dtype,
    MaskName,
    Model,
    OpenSpecial,
    Overwrite,
    Pooling,
    Prompt,
    Revision,
    drawing_figures,
    load_aloud,
    progress,
    say,
    typed,
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

if TYPE_CHECKING:
    from headscope.study.study import Study

EXAMPLES = """
[bold]Examples[/bold]

headscope importance ./minilm-mnli --task mnli --data glue --by all --out study

headscope importance minilm --task stsb --data stsb_dev.tsv --by ablation,gradient --race 0.05 --out study

headscope importance opus-mt-en-fr --task bleu --data test.en,test.fr --heads cross.5.*,cross.4.2 --out study

headscope importance opus-mt-en-fr --task translation --data val.en,val.fr --by relevance,ablation --out study

headscope importance rxnmapper --task masked --data reactions.txt --kind head,only,shared --out study

In Python: headscope.importance, headscope.write
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def importance(
    model: Model,
    task: TaskName,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            help="The study to write, or to add to: one of the same model that has no importances yet",
            show_default=False,
        ),
    ],
    by: Annotated[
        str,
        typer.Option(
            help="ablation (exact), gradient, relevance, confidence, entropy, norm, random, with commas between; or all"
        ),
    ] = "ablation",
    split: Split = "dev",
    kind: Annotated[
        str,
        typer.Option(
            help="What to take away: head, only (all but one of a site), site, layer, all, pair (of --heads) or shared"
        ),
    ] = "head",
    mode: Annotated[
        str,
        typer.Option(
            help="What stands in its place: zero, mean (its average), uniform (attention 1/n), fixed (nearest pattern)"
        ),
    ] = "zero",
    heads: Annotated[
        str | None,
        typer.Option(
            help="The heads to take away, alone or in pairs, as in 3.2,4.*", show_default="all"
        ),
    ] = None,
    race: Annotated[
        float | None,
        typer.Option(
            help="Settle clear heads early, at this error rate, as in 0.05",
            show_default="all run on all",
        ),
    ] = None,
    labels_free: Annotated[
        bool,
        typer.Option(
            "--labels-free", help="Gradients of the loss against what the model itself says"
        ),
    ] = False,
    normalized: Annotated[
        bool, typer.Option("--normalized", help="Gradients divided by the norm of their layer's")
    ] = False,
    rules: Annotated[
        str | None,
        typer.Option(
            help="Of relevance: voita (everything that gates is held fixed) or attnlrp",
            show_default="voita",
        ),
    ] = None,
    columns: Columns = None,
    labels: Labels = None,
    limit: Limit = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = 32,
    seed: Annotated[int, typer.Option(help="Of the order of examples and of resampling")] = 0,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped, to the same bytes")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """What every head does for a task: exact removal, cheaper guesses, and how good these are."""
    from headscope.ablation.importance import importance as run
    from headscope.atomic_dir import drafted
    from headscope.model.attention_model import AttentionModel
    from headscope.report.write import write_into
    from headscope.study.journal import NAME, Journal
    from headscope.study.run_record import check_same_model
    from headscope.study.study_dir import to_add_to

    there = to_add_to(out, "importance", overwrite=overwrite)

    def loaded(wanted: str) -> AttentionModel:
        one = load_aloud(
            model, revision, device, dtype, wanted, mask, open_special, pooling, prompt
        )
        if there is not None:
            check_same_model(one, there, out)
        return one

    with drafted(
        out, overwrite=overwrite or there is not None, resume=resume, kept=[NAME]
    ) as folder:
        with progress(model) as update:
            study = run(
                loaded,
                task=task,
                data=data,
                by=by,
                split=split,
                kinds=kind,
                mode=mode,  # type: ignore[arg-type]
                heads=heads,
                race=race,
                labels_free=labels_free,
                normalized=normalized,
                rules=rules,  # type: ignore[arg-type]
                columns=pairs_of(columns, "--columns"),
                labels=pairs_of(labels, "--labels"),
                max_length=max_length,
                limit=limit,
                batch_size=batch_size,
                seed=seed,
                journal=lambda header: Journal(folder, header, resume=resume),
                progress=update,
                say=say,
            )
        study.record["command"] = typed()
        study = study if there is None else there.joined(study)
        with drawing_figures():
            write_into(study, folder)
        (folder / NAME).unlink(
            missing_ok=True
        )  # last: a run that is killed while it draws need not be swept again
    for line in _summary(study):
        say(line)
    typer.echo(out / "index.html")


def _summary(study: Study) -> Iterator[str]:
    """The model without an ablation, how many heads are significant, and whether the examples are enough."""
    from headscope.ablation.ablation_results import LOSS
    from headscope.ablation.significance import ALPHA
    from headscope.report.run_facts import ENOUGH_TEXTS
    from headscope.report.sections.agreement import noisy_ranks

    record = study.record["importance"]
    count, intact = record["examples"], record["intact"][record["metric"]]["value"]
    yield f"{count} examples, {record['metric']} {intact:.4f} with all heads"
    table = study.tables.get("significance")
    if table is not None:
        rows = table[table["statistic"] == LOSS]
        many = int(rows["is_significant"].eq(True).sum())
        yield f"{many} of {len(rows)} heads change the loss significantly when ablated alone (p (Holm) below {ALPHA:g})"
    if count < ENOUGH_TEXTS:
        yield f"note: {count} examples are few: only large changes can be significant. Take {ENOUGH_TEXTS} or more"
    for finding in noisy_ranks(study):
        yield f"note: {finding.sentence}"
