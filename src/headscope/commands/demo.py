"""headscope demo: heads of a real model on a corpus and a treebank, their importance, and a page of one sentence."""

from __future__ import annotations

from dataclasses import replace

import typer

from headscope.commands._from_config import command
from headscope.commands._options import drawing_figures, say
from headscope.config.command_line import command_line_of
from headscope.config.demo import DemoConfig
from headscope.config.serve import ServeConfig
from headscope.config.shared import Run
from headscope.config.texts import TextData


@command()
def demo(run: Run, data: TextData, config: DemoConfig) -> None:
    """Show what the 72 heads of a real model attend to, which syntactic relations they follow, and which matter."""
    from headscope.api.check_paths import is_demo
    from headscope.api.demo import measure_demo
    from headscope.atomic_dir import atomic_directory
    from headscope.report.write import write_into

    out = run.out
    assert out is not None
    with atomic_directory(out, overwrite=is_demo(out)) as folder:
        study = measure_demo(folder, replace(run, log=say), data)
        with drawing_figures():
            write_into(study, folder)
    say("to type other sentences and to switch heads off:")
    say(command_line_of(ServeConfig(study=[out]), arguments=("minilm",)))
    say("two pages to open in a browser:")
    typer.echo(
        f"{out / 'index.html'} shows what every head attends to, which heads follow syntactic relations, and which "
        "heads the model needs."
    )
    typer.echo(f"{out / 'look.html'} shows the attention of all 72 heads for one sentence.")
