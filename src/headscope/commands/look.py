"""headscope look: the attention maps of all heads for one input."""

from __future__ import annotations

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
    Revision,
    masked,
    say,
)

EXAMPLES = """
[bold]Examples[/bold]

headscope look minilm "The cat sat on the mat." --out cat.html

headscope look minilm "The cat sat on the mat." --lens raw,norm,gradient,rollout --out cat.html

headscope look opus-mt-en-fr "The cat sat on the mat." "Le chat s'assit sur le tapis." --out cat.html

In Python: model.look(text).save("cat.html")
"""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def look(
    model: Model,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the model reads", show_default=False)
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="SECOND",
            help="A second text, or the target of a translation",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="The page to write, such as look.html; .html is added to a name without an ending",
            show_default=False,
        ),
    ] = ...,  # type: ignore[assignment]
    lens: Annotated[
        str,
        typer.Option(
            help="What is looked at, with commas; the page switches in place. Of heads: raw, norm, effective, "
            "effective-simplex, gradient; of tokens: rollout, flow, gradient-rollout, relevance, "
            "value-zeroing, knock-out"
        ),
    ] = "raw",
    target: Annotated[
        int | None,
        typer.Option(
            help="Take gradients of what the model says of this token, counted from 0",
            show_default="of all tokens",
        ),
    ] = None,
    max_length: MaxLength = None,
    mask: MaskName = None,
    open_special: OpenSpecial = False,
    pooling: Pooling = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Draw what every head attends to in one text, as a page to click through."""
    from headscope.analysis.lens_maps import lens_names
    from headscope.model.load import load
    from headscope.report.look.look import look as run

    lenses = lens_names(lens)
    worn = masked(mask, open_special)
    loaded = load(
        model, revision=revision, device=device, dtype=dtype, pooling=pooling, say=say
    ).wear(*worn)
    typer.echo(
        run(loaded, text, second, lens=lenses, target=target, max_length=max_length).save(out)
    )
