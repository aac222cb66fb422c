"""Options of commands that train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headscope.config.names import NEW_MODEL_SIZES
from headscope.config.option import ADVANCED, NEW_MODEL, Config, option

AS_CONFIGURED = "that of the architecture"
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
        "Share of the steps (0 to 1) during which the learning rate rises from 0 to its maximum",
        at_least=0,
        at_most=1,
        panel=ADVANCED,
    )
    weight_decay: float = option(
        0.01,
        "Weight decay of AdamW; biases and norms have none",
        at_least=0,
        panel=ADVANCED,
    )
    clip: float = option(
        1.0,
        "Maximum norm of the gradient; a larger gradient is scaled down to it",
        above=0,
        panel=ADVANCED,
    )


@dataclass(frozen=True)
class ModelSizes(Config):
    """The size of a new model, and a tokenizer to learn for it; None: as the architecture's configuration states."""

    layers: int | None = option(
        None,
        "Number of layers of the new model",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    heads_per_layer: int | None = option(
        None,
        "Number of heads in each layer of the new model",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    hidden: int | None = option(
        None,
        "Hidden size of the new model; a multiple of the heads per layer",
        at_least=1,
        show_default=AS_CONFIGURED,
        panel=NEW_MODEL,
    )
    intermediate: int | None = option(
        None,
        "Feed-forward size of the new model",
        at_least=1,
        show_default=f"{AS_CONFIGURED}; with --hidden 4 times the hidden size",
        panel=NEW_MODEL,
    )
    vocabulary: int | None = option(
        None,
        "Learn a new tokenizer with this number of tokens (at least 261) from the training texts",
        at_least=LEAST_VOCABULARY,
        metavar="N",
        show_default="use an existing tokenizer",
        panel=NEW_MODEL,
    )

    def sizes(self) -> dict[str, int | None]:
        """The sizes of the new model by name; None is the size in the configuration of the architecture."""
        return {name: getattr(self, name) for name in NEW_MODEL_SIZES}


FROM_SCRATCH_HELPS = {  # help texts of commands that also train existing models
    "layers": "With --from-scratch: number of layers",
    "heads_per_layer": "With --from-scratch: number of heads in each layer",
    "hidden": "With --from-scratch: hidden size; a multiple of the heads per layer",
    "intermediate": "With --from-scratch: feed-forward size",
    "vocabulary": "With --from-scratch: learn a new tokenizer with this number of tokens (at least 261) from the "
    "training texts",
}


@dataclass(frozen=True)
class NewModelConfig(ModelSizes):
    """Training from new weights: the architecture of the given model, in the same or another size."""

    from_scratch: bool = option(
        False,
        "Train a new model with random weights and the architecture of MODEL, instead of MODEL itself",
        panel=NEW_MODEL,
    )


def checkpoints_option() -> Any:
    """The option for the number of checkpoints that a training keeps."""
    return option(
        None,
        "Number of checkpoints to keep in OUT/checkpoints, denser early in the training; headscope analyze "
        "--checkpoints reads them",
        at_least=2,
        metavar="N",
        show_default="none",
    )
