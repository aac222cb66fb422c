"""headscope pretrain: train a new encoder on a text corpus."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import say
from headscope.config.pretrain import PretrainConfig
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.progress import is_first_process, progress

EXAMPLES = """
[bold]Examples[/bold]

headscope pretrain --corpus wiki.txt.gz --out small-bert

headscope pretrain --corpus wiki.txt.gz --vocabulary 8000 --hidden 256 --epochs 3 --checkpoints 12 --out small-bert

headscope pretrain --config ./my-roberta/config.json --tokenizer ./my-roberta --corpus a.txt b.txt --out mine

headscope film small-bert --corpus wiki.txt.gz --limit 500 --out over-training

In Python: headscope.pretrain
"""


@command(EXAMPLES, group="Models")
def pretrain(data: TextData, config: PretrainConfig, reading: Reading, run: Run) -> None:
    """Train a new encoder to predict masked tokens of a text corpus."""
    import headscope

    with progress("pretrain") as update:
        record = headscope.pretrain(
            data, config, reading=reading, run=replace(run, progress=update)
        ).record
    accuracy = record["moments"][-1]["metrics"]["accuracy"]
    interval = (
        "" if accuracy["low"] is None else f" [{accuracy['low']:.4f}, {accuracy['high']:.4f}]"
    )
    say(
        f"masked tokens guessed right: {accuracy['value']:.4f}{interval}, the commonest token "
        f"{record['baseline']['accuracy']:.4f}, {record['seconds']:.0f} s"
    )
    if is_first_process():
        typer.echo(run.out)
