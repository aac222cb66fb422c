"""`Family`: what headscope has to know about a model family that it cannot find out by observing a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from headscope.model.headless_attention import silence
from headscope.model.softmax_tap import Tap


def no_inputs(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """No additional inputs (the default of `Family.dry_inputs`)."""
    return {}


@dataclass(frozen=True)
class Family:
    """A family of models with the same structure.

    model_types   the `model_type`s in configurations
    layers        function of the configuration: {stack: number of sites}, which the test forward pass must find
    stack         function of (name of an attention module, number of its earlier calls in this forward pass): the stack
                  of the call. The layer is not needed, because calls of a stack are in the order of layers
    tap           how to intercept the softmax, if the family does not use the attention interface of transformers
    takes_text    False for images
    time_major    whether hidden states are [token, sequence, width] instead of [sequence, token, width]
    counts_from_padding  model types whose first position is the padding id + 1, so that lower positions are never used
    dry_inputs    function of the inputs of a test forward pass: additional inputs, so that every stack is called
    axes          {name of a parameter of an attention module: its axis of heads}, if they are not linear layers
    settle        function of (attention module, numbers of its remaining heads): adapts other tensors with an axis of
                  heads; called after pruning and on loading
    silence       function of (attention module): lets it run without heads; called after pruning its last head and on
                  loading
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
        """How many of the `max_position_embeddings` positions no token can have."""
        return int(config.pad_token_id) + 1 if config.model_type in self.counts_from_padding else 0


def encoder(name: str, occurrence: int) -> str:
    """`Family.stack` of a model with only an encoder."""
    return "encoder"


def decoder(name: str, occurrence: int) -> str:
    """`Family.stack` of a model with only a decoder."""
    return "decoder"


def encoder_layers(config: Any) -> dict[str, int]:
    """`Family.layers` of a model with only an encoder."""
    return {"encoder": config.num_hidden_layers}


def decoder_layers(config: Any) -> dict[str, int]:
    """`Family.layers` of a model with only a decoder."""
    return {"decoder": config.num_hidden_layers}


def keep_heads(pruned_class: Callable[[Any], Any]) -> Callable[[nn.Module, tuple[int, ...]], None]:
    """A `Family.settle` that changes the class of an attention module, and stores which heads are left in `kept_heads`.

    pruned_class  function of the module's class: a subclass that can run with some of its heads
    """

    def settle(core: nn.Module, numbers: tuple[int, ...]) -> None:
        if not hasattr(core, "kept_heads"):
            core.__class__ = pruned_class(type(core))
        core.kept_heads = list(numbers)  # type: ignore[assignment]

    return settle
