"""Options of the commands that train."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.config.training import ModelSizes

AS_CONFIGURED = "as configured"

FromScratch = Annotated[
    bool,
    typer.Option(
        "--from-scratch", help="Begin with new weights: only the model's kind and size are taken"
    ),
]
Layers = Annotated[
    int | None, typer.Option(help="Layers of a new model", show_default=AS_CONFIGURED)
]
Heads = Annotated[
    int | None, typer.Option(help="Heads in a layer of a new model", show_default=AS_CONFIGURED)
]
Hidden = Annotated[
    int | None, typer.Option(help="Width of a new model", show_default=AS_CONFIGURED)
]
Intermediate = Annotated[
    int | None,
    typer.Option(
        help="Width of its feed-forward layers", show_default=f"{AS_CONFIGURED}; 4 × --hidden"
    ),
]
Vocabulary = Annotated[
    int | None,
    typer.Option(
        help="Learn a tokenizer of so many tokens from the texts", metavar="N", show_default="no"
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run that was stopped, to the same result")
]


def scratch_of(
    from_scratch: bool,
    layers: int | None,
    heads: int | None,
    hidden: int | None,
    intermediate: int | None,
    vocabulary: int | None,
) -> ModelSizes | None:
    """The size of a new model; None if the trained weights are used."""
    sizes = ModelSizes(layers, heads, hidden, intermediate, vocabulary)
    return sizes if from_scratch else None
