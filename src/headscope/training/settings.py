"""How to train: epochs, rates, seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headscope.errors import HeadscopeError


@dataclass(frozen=True)
class Settings:
    """How to train. warmup: share of the steps in which the rate rises; clip: largest norm of the gradients.

    steps: so many in all, whatever the epochs
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise HeadscopeError(
                f"{self.steps} is not possible", where="`steps`", expected="1 or more"
            )
        least = {
            "epochs": 1,
            "batch_size": 1,
            "learning_rate": 1e-12,
            "warmup": 0,
            "weight_decay": 0,
            "clip": 1e-12,
        }
        for name, lowest in least.items():
            value = getattr(self, name)
            if not (value >= lowest and math.isfinite(value)) or (name == "warmup" and value > 1):
                option = f"`{name}`"
                open_below = 0 < lowest < 1
                expected = (
                    "0 to 1"
                    if name == "warmup"
                    else "more than 0"
                    if open_below
                    else f"{lowest:g} or more"
                )
                raise HeadscopeError(f"{value} is not possible", where=option, expected=expected)
