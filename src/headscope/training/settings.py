"""Settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headscope.config.training import TrainingConfig


@dataclass(frozen=True)
class Settings:
    """What the loop needs to know. Values are checked by `TrainingConfig`.

    warmup  share of the steps in which the learning rate rises
    clip    maximum norm of the gradients
    steps   number of steps, instead of epochs
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    steps: int | None = None


def settings_of(config: TrainingConfig, seed: int, steps: int | None = None) -> Settings:
    """The loop's settings from a command's config."""
    shared = {f.name: getattr(config, f.name) for f in fields(TrainingConfig)}
    return Settings(**shared, seed=seed, steps=steps)
