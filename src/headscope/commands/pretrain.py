"""headscope pretrain: train a new encoder on a text corpus."""

from __future__ import annotations

import typer

from headscope.commands._from_config import command
from headscope.commands._options import AsJson, print_json, say, showing_progress
from headscope.config.pretrain import PretrainConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.progress import is_first_process


@command()
def pretrain(
    data: TextData, config: PretrainConfig, reading: Reading, run: Run, as_json: AsJson = False
) -> None:
    """Train a new encoder to predict masked tokens of a text corpus."""
    import headscope

    with showing_progress("pretrain", run) as run:
        record = headscope.pretrain(data, config, reading=reading, run=run).record
    if as_json:
        if is_first_process():
            print_json(record)
        return
    accuracy = record["moments"][-1]["metrics"]["accuracy"]
    interval = (
        "" if accuracy["low"] is None else f" [{accuracy['low']:.4f}, {accuracy['high']:.4f}]"
    )
    say(
        f"accuracy of masked tokens: {accuracy['value']:.4f}{interval}, most frequent token "
        f"{record['baseline']['accuracy']:.4f}, {record['seconds']:.0f} s"
    )
    if is_first_process():
        typer.echo(run.out)
