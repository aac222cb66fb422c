"""headscope serve: the explorer in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headscope.commands._app import app
from headscope.commands._options import (
    Device,
    Dtype,
    MaskName,
    MaxLength,
    Model,
    OpenSpecial,
    Pooling,
    Prompt,
    Revision,
    load_aloud,
    say,
)
from headscope.errors import HeadscopeError

EXAMPLES = """
[bold]Examples[/bold]

headscope serve minilm

headscope serve minilm --study study --study which --compare small

In Python: headscope.serve(model)
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def serve(
    model: Model,
    study: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="What a study of it found, beside it; several are joined",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="MODEL2", help="A second model beside it", show_default=False),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Where to listen; taken: the next one that is free"),
    ] = 8760,
    host: Annotated[
        str, typer.Option(help="Another address than this machine's own needs a token")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="What a request must bring", show_default="made where --host needs one"),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, open nothing")
    ] = False,
    max_length: MaxLength = None,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    pooling: Pooling = None,
    prompt: Prompt = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Explore a model in the browser: every head on any text, and what the model says without some of them."""
    from headscope.explorer.predictions import Alike, prediction_of
    from headscope.explorer.serving import serve as run
    from headscope.explorer.serving import studied

    if study:
        say(f"reading {' and '.join(map(str, study))} …")
    found, notes = studied(study)  # before anything that takes longer
    for note in notes:
        say(f"note: {note}")
    loaded = load_aloud(model, revision, device, dtype, None, mask, open_special, pooling, prompt)
    if compare is not None:
        say(f"loading {compare} …")
    other = (
        None
        if compare is None
        else load_aloud(compare, None, device, dtype, pooling=pooling, prompt=prompt)
    )
    pools = any(isinstance(prediction_of(one), Alike) for one in (loaded, other) if one is not None)
    for option, value in (("--pooling", pooling), ("--prompt", prompt)):
        if value is not None and not pools:
            raise HeadscopeError(
                "has no effect on this model, which gives no vectors of texts",
                where=option,
                expected="a sentence encoder",
                mend="Leave it out",
            )
    explorer = run(
        loaded,
        study=found,
        compare=other,
        host=host,
        port=port,
        token=token,
        browser=not no_browser,
        max_length=max_length,
    )
    if (
        explorer.is_working
    ):  # what could not be stopped soon would be waited for, or torn down in the middle
        sys.stdout.flush()
        os._exit(0)
