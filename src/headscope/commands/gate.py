"""headscope gate: learn which heads to keep."""

from __future__ import annotations

from pathlib import Path

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, Model, print_json, say, showing_progress
from headscope.config.command_line import command_line_of
from headscope.config.gate import GateConfig
from headscope.config.prune import PruneConfig
from headscope.config.shared import Reading, Run, TaskData


@command()
def gate(
    model: Model,
    data: TaskData,
    config: GateConfig,
    reading: Reading,
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Learn which heads to keep by training a gate per head; the result is a plan for headscope prune."""
    import headscope

    with showing_progress(f"{model} on {data.task}", run) as run:
        study = headscope.gate(model, data, config, reading=reading, run=run)
    if as_json:
        print_json(study.record)
        return
    front = study.tables["front"]
    pruned = front[front["removed"] > 0]
    if len(pruned):
        first = f"{run.out}/{pruned['aim'].iloc[0]}"
        trained = model if config.freeze_weights else first
        prune = PruneConfig(plan=f"{first}/plan.json"), Run(out=Path("small"))
        say(f"prune it: {command_line_of(*prune, arguments=(trained,))}")
    else:
        say(f"nothing to prune: all {front['left'].max()} heads are kept")
    typer.echo(run.out)
