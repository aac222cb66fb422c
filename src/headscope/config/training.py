"""Options of commands that train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.config.option import Config, option

AS_CONFIGURED = "as configured"
LEAST_VOCABULARY = 261  # 256 bytes and 5 special tokens


@dataclass(frozen=True)
class TrainingConfig(Config):
    """Epochs, batch size and learning rate; the rest of the optimiser's settings is for Python only.

    warmup  share of the steps in which the learning rate rises; clip: largest norm of the gradients
    """

    epochs: int = option(3, "Number of passes over the training examples", at_least=1)
    batch_size: int = option(32, "Sequences per batch", at_least=1)
    learning_rate: float = option(5e-5, "Learning rate of the weights", above=0)
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0


@dataclass(frozen=True)
class NewModelConfig(Config):
    """New weights instead of the model's: its architecture, in the same or another size."""

    from_scratch: bool = option(
        False, "Start from new weights; only architecture and size are taken"
    )
    layers: int | None = option(
        None, "Number of layers of a new model", at_least=1, show_default=AS_CONFIGURED
    )
    heads: int | None = option(
        None, "Heads per layer of a new model", at_least=1, show_default=AS_CONFIGURED
    )
    hidden: int | None = option(
        None, "Hidden size of a new model", at_least=1, show_default=AS_CONFIGURED
    )
    intermediate: int | None = option(
        None,
        "Size of its feed-forward layers",
        at_least=1,
        show_default=f"{AS_CONFIGURED}; 4 × the hidden size",
    )
    vocabulary: int | None = option(
        None,
        "Learn a tokenizer with this number of tokens from the texts",
        at_least=LEAST_VOCABULARY,
        metavar="N",
        show_default="no",
    )

    def sizes(self) -> dict[str, Any]:
        """The sizes of a new model by name; None: as configured."""
        return {name: getattr(self, name) for name in ("layers", "heads", "hidden", "intermediate")}
