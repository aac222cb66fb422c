"""Options of commands that train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headscope.config.option import ADVANCED, NEW_MODEL, Config, option

AS_CONFIGURED = "as configured"
LEAST_VOCABULARY = 261  # 256 bytes and 5 special tokens


@dataclass(frozen=True)
class TrainingConfig(Config):
    """Epochs, batch size, learning rate and the other settings of the optimiser."""

    python_only: ClassVar[tuple[str, ...]] = ("warmup", "weight_decay", "clip")

    epochs: int = option(3, "Number of passes over the training examples", at_least=1)
    batch_size: int = option(32, "Sequences per batch", at_least=1, panel=ADVANCED)
    learning_rate: float = option(5e-5, "Learning rate of the weights", above=0, panel=ADVANCED)
    warmup: float = option(
        0.1,
        "Share of the steps with a rising learning rate",
        at_least=0,
        at_most=1,
        panel=ADVANCED,
    )
    weight_decay: float = option(
        0.01,
        "Weight decay of AdamW, except for biases and norms",
        at_least=0,
        panel=ADVANCED,
    )
    clip: float = option(1.0, "Maximum norm of the gradients", above=0, panel=ADVANCED)


@dataclass(frozen=True)
class ModelSizes(Config):
    """The size of a new model, and a tokenizer to learn for it; None: as its configuration states."""

    layers: int | None = option(
        None,
        "Number of layers of a new model",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    heads: int | None = option(
        None,
        "Heads per layer of a new model",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    hidden: int | None = option(
        None,
        "Hidden size of a new model",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    intermediate: int | None = option(
        None,
        "Feed-forward size of a new model",
        at_least=1,
        show_default=f"{AS_CONFIGURED}; 4 × the hidden size",
        panel=NEW_MODEL,
    )
    vocabulary: int | None = option(
        None,
        "Learn a tokenizer with this number of tokens from the texts",
        at_least=LEAST_VOCABULARY,
        metavar="N",
        show_default="no",
        panel=NEW_MODEL,
    )

    def sizes(self) -> dict[str, int | None]:
        """The sizes of a new model by name; None: as configured."""
        return {name: getattr(self, name) for name in ("layers", "heads", "hidden", "intermediate")}


@dataclass(frozen=True)
class NewModelConfig(ModelSizes):
    """New weights instead of the model's: its architecture, in the same or another size."""

    from_scratch: bool = option(
        False,
        "Start from new weights, with the architecture and size of MODEL",
        panel=NEW_MODEL,
    )


def checkpoints_option() -> Any:
    """Number of models to keep during the training."""
    return option(
        None,
        "Number of checkpoints to keep in OUT/checkpoints, early ones closer together (for headscope analyze "
        "--checkpoints)",
        at_least=2,
        metavar="N",
        show_default="none",
    )
