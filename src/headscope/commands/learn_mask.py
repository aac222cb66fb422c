"""headscope learn-mask: learn which positions need to attend to which."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import Model, say
from headscope.config.command_line import command_line
from headscope.config.learn_mask import LearnMaskConfig
from headscope.config.shared import Reading, Run, TaskData, evaluate_options
from headscope.progress import progress

EXAMPLES = """
[bold]Examples[/bold]

headscope learn-mask ./minilm-mnli --task mnli --data glue --sparsity 0.8,0.9 --out masks

headscope learn-mask ./minilm-mnli --task mnli --data glue --soft --frozen --seeds 0,1,2 --out which-positions

headscope learn-mask rxnfp --objective mlm --corpus reactions.txt --penalty 1 --structured --per head --out masks

headscope evaluate ./minilm-mnli --task mnli --data glue --mask masks/sparsity-0.9-seed-0/mask.npz

In Python: headscope.learn_mask
"""


@command(EXAMPLES, group="Learn")
def learn_mask(
    model: Model, data: TaskData, config: LearnMaskConfig, reading: Reading, run: Run
) -> None:
    """Learn which positions need to attend to which: a mask that is trained with the weights or alone."""
    import headscope

    with progress(f"{model} on {data.task}") as update:
        headscope.learn_mask(
            model, data, config, reading=reading, run=replace(run, progress=update)
        )
    if not config.soft:
        first = f"{run.out}/{config.targets[0].name}"
        reported = data if config.corpus is None else replace(data, report_on="dev")
        line = command_line(
            "evaluate",
            model if config.frozen else first,
            revision=run.revision if config.frozen else None,
            **evaluate_options(reported),
            mask=f"{first}/mask.npz",
        )
        say(f"use it: {line}")
    typer.echo(run.out)
