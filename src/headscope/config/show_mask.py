"""Options of `masks show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headscope.config.option import Config, option

WIDEST = 40  # positions that fit into the width of a terminal


@dataclass(frozen=True)
class ShowMaskConfig(Config):
    """The positions that a mask allows to attend to each other."""

    command = "masks show"
    examples = (
        "headscope masks show star --length 16",
        "headscope masks show longformer:width=3 --length 64 --out longformer.svg",
        "headscope masks show learned/sparsity-0.9-seed-0/mask.npz --length 32",
    )
    python = "headscope.show_mask"

    length: int = option(128, "Number of positions of the mask", at_least=1)
    out: Path | None = option(
        None,
        "Picture to write, e.g. mask.svg",
        show_default="none; the mask is printed as text if it fits",
        recorded=False,
    )
