"""headscope masks learn: learn which positions need to attend to which."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.commands.masks import masks
from headscope.config.command_line import command_line_of
from headscope.config.evaluate import EvaluateConfig, on_report_split
from headscope.config.learn_mask import LearnMaskConfig
from headscope.config.shared import Reading, Run, TaskData


@command(app=masks)
def learn(
    model: Model,
    data: TaskData,
    config: LearnMaskConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Learn an attention mask for a task: which positions need to attend to which."""
    import headscope

    with showing_progress(f"{model} on {data.task}", run) as run:
        study = headscope.learn_mask(model, data, config, reading=reading, run=run)
    if as_json:
        print_json(study.record)
        return
    if not config.soft:
        first = f"{run.out}/{config.targets[0].name}"
        reported = on_report_split(
            data if config.corpus is None else replace(data, report_on="dev")
        )
        # The trained model is in the directory of its mask; without training it is the one that was given.
        trained, revision = (model, run.revision) if config.freeze_weights else (first, None)
        masked = Reading(mask=f"{first}/mask.npz")
        configs = EvaluateConfig(), reported, masked, Run(revision=revision)
        say(f"use it: {command_line_of(*configs, arguments=(trained,))}")
    typer.echo(run.out)
