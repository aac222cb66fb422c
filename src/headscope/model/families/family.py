"""The description of a family of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from headscope.model.headless_attention import silence
from headscope.model.softmax_tap import Tap


def no_inputs(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {}


@dataclass(frozen=True)
class Family:
    """A family of models with the same structure.

    model_types   the `model_type`s in configurations
    layers        configuration -> {stack: number of sites}; what the dry run must find
    stack         (module name, occurrence in this forward) -> its stack; layers are counted in the order of calls
    tap           access to the softmax of a family that does not use transformers' attention interface
    takes_text    False for images
    time_major    whether its states are [token, sequence, width]
    counts_from_padding  model types whose positions begin after the padding id, so that some are never used
    dry_inputs    additional inputs of a dry run, so that every stack is called
    axes          parameters of an attention module, other than linear layers, that have an axis of heads
    settle        (attention module, head numbers) adapts other tensors with an axis of heads, after pruning and on
                  loading
    silence       (attention module) lets it run without any head, after pruning the last one and on loading
    """

    model_types: tuple[str, ...]
    layers: Callable[[Any], dict[str, int]]
    stack: Callable[[str, int], str]
    tap: Tap | None = None
    takes_text: bool = True
    time_major: bool = False
    counts_from_padding: tuple[str, ...] = ()
    dry_inputs: Callable[[dict[str, Tensor]], dict[str, Tensor]] = no_inputs
    axes: Mapping[str, int] = field(default_factory=dict)
    settle: Callable[[nn.Module, tuple[int, ...]], None] | None = None
    silence: Callable[[nn.Module], None] = silence

    def positions_lost(self, config: Any) -> int:
        """The number of `max_position_embeddings` that no token can have."""
        return int(config.pad_token_id) + 1 if config.model_type in self.counts_from_padding else 0


def encoder(name: str, occurrence: int) -> str:
    """Every attention module belongs to the encoder."""
    return "encoder"


def decoder(name: str, occurrence: int) -> str:
    """Every attention module belongs to the decoder."""
    return "decoder"


def encoder_layers(config: Any) -> dict[str, int]:
    return {"encoder": config.num_hidden_layers}


def decoder_layers(config: Any) -> dict[str, int]:
    return {"decoder": config.num_hidden_layers}


def keep_heads(pruned_class: Callable[[Any], Any]) -> Callable[[nn.Module, tuple[int, ...]], None]:
    """A `settle` that gives an attention module the class made for pruned heads, and their numbers."""

    def settle(core: nn.Module, numbers: tuple[int, ...]) -> None:
        if not hasattr(core, "kept_heads"):
            core.__class__ = pruned_class(type(core))
        core.kept_heads = list(numbers)  # type: ignore[assignment]

    return settle
