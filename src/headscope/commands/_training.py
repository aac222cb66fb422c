"""Options of the commands that train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headscope.training.from_scratch import Scratch

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
Checkpoints = Annotated[
    int | None,
    typer.Option(
        help="Keep so many models along the way, early ones closer together, in OUT/checkpoints: see headscope film",
        metavar="N",
        show_default="none",
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
) -> Scratch | None:
    """How to begin from nothing, as it was asked for; None where a trained model is taken as it is."""
    from headscope.model.new_model import Sizes
    from headscope.training.from_scratch import Scratch

    return (
        Scratch(Sizes(layers, heads, hidden, intermediate), vocabulary=vocabulary)
        if from_scratch
        else None
    )
