"""Options of `speed`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headscope.config.masks import check_mask, check_sizes
from headscope.config.option import ADVANCED, Config, option
from headscope.config.parsing import numbers
from headscope.config.shared import Run
from headscope.errors import HeadscopeError

REPEATS = 12
LENGTHS = (512, 1024, 2048, 4096)  # of sequences under a mask
BATCH_SIZE, LENGTH = 32, 128  # without a mask


@dataclass(frozen=True)
class SpeedConfig(Config):
    """Time a model by its number of heads, or its attention with and without a mask."""

    command = "speed"
    group = "Prune"
    examples = (
        "headscope speed minilm",
        "headscope speed small --against minilm --batch-size 32 --length 128",
        "headscope speed minilm --mask longformer --length 512,1024,2048,4096 --out speed.svg",
    )
    python = "headscope.speed"
    uses = {Run: ("out", "revision", "device", "dtype")}
    helps = {"out": "With --mask: picture to write, e.g. speed.svg"}

    against: str | Path | None = option(
        None, "Unpruned model to compare with; the two are timed alternately", show_default="none"
    )
    mask: str | None = option(
        None,
        "Time attention with and without this mask, instead of the model; headscope masks lists the names",
        check=check_mask,
        show_default="none",
    )
    batch_size: int | None = option(
        None, "Sequences per batch", at_least=1, show_default=f"{BATCH_SIZE}; with --mask 1"
    )
    length: tuple[int, ...] | None = option(
        None,
        "Tokens per sequence; with --mask also several numbers",
        parse=numbers("length"),
        show_default=f"{LENGTH}; with --mask {','.join(map(str, LENGTHS))}",
    )
    repeats: int = option(
        REPEATS, "Number of timed runs; with --mask at least 6", at_least=1, panel=ADVANCED
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.lengths) < 1:
            raise HeadscopeError(f"`length` must be at least 1, got {min(self.lengths)}")
        if self.mask is not None:
            check_sizes(self.lengths, self.sequences, self.repeats)
        elif len(self.lengths) > 1:
            raise HeadscopeError("several values of `length` require `mask`")

    @property
    def sequences(self) -> int:
        """Sequences per batch."""
        return self.batch_size or (BATCH_SIZE if self.mask is None else 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens per sequence."""
        return self.length or ((LENGTH,) if self.mask is None else LENGTHS)
