"""Attention that has lost all its heads: what is left is the bias of its output projection."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor, nn


@cache
def headless_class(attention: Any) -> Any:
    """The class of such a module, with the forward of the common form: states in, (states, no weights) out."""

    class HeadlessAttention(attention):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, *args: Any, **others: Any) -> tuple[Tensor, None]:
            advance_cache(
                self, hidden_states, others.get("past_key_values"), others.get("key_value_states")
            )
            return output_without_heads(self, hidden_states), None

    return HeadlessAttention


def silence(core: nn.Module) -> None:
    """Make this module of the common form silent."""
    kind: Any = type(core)
    core.__class__ = headless_class(kind)


def output_without_heads(core: nn.Module, hidden: Tensor) -> Tensor:
    """Nothing [.., .., 0] where the output projection is outside of the module, else what that adds to nothing."""
    from transformers.pytorch_utils import Conv1D

    for module in core.modules():
        if isinstance(module, nn.Linear | Conv1D):
            taken, given = (
                module.weight.shape if isinstance(module, Conv1D) else module.weight.T.shape
            )
            if taken == 0 and given > 0:
                if isinstance(module, nn.Linear):
                    found: Tensor = module(hidden[..., :0])
                    return found
                nothing = hidden.new_zeros(*hidden.shape[:-1], given)  # Conv1D cannot take nothing
                return nothing if module.bias is None else nothing + module.bias
    return hidden[..., :0]


def advance_cache(core: nn.Module, hidden: Tensor, past: Any, other_side: Tensor | None) -> int:
    """Let a cache of earlier tokens know that these were seen, as lengths are read from it; how many were before."""
    own = getattr(past, "self_attention_cache", past)
    if own is None or other_side is not None:
        return 0
    before = int(own.get_seq_length(core.layer_idx))
    stub = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)
    own.update(stub, stub, core.layer_idx)
    return before
