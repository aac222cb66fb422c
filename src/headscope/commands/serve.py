"""headscope serve: the explorer in the browser."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

from headscope.commands._from_config import command
from headscope.commands._options import argument, say
from headscope.config.serve import ServeConfig
from headscope.config.shared import Reading, Run

Model = Annotated[
    str | None,
    argument("MODEL", "Model: a name, directory or hub id; by default smollm2, a small decoder"),
]


@command()
def serve(config: ServeConfig, reading: Reading, run: Run, model: Model = None) -> None:
    """Explore a model in the browser: attention on any text, and predictions with heads ablated."""
    from headscope.explorer.serving import print_line
    from headscope.explorer.serving import serve as start

    if config.study:
        say(f"reading {' and '.join(map(str, config.study))} …")
    explorer = start(model, config, reading=reading, run=replace(run, log=print_line))
    if explorer.is_working:  # a computation that cannot be stopped soon must not delay the exit
        sys.stdout.flush()
        os._exit(0)
