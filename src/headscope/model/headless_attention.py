"""Attention modules that have lost all their heads. They return only the bias of their output projection."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor, nn


@cache
def headless_class(attention: Any) -> Any:
    """A subclass of an attention class that runs without heads: takes states, returns (states, None for weights)."""

    class HeadlessAttention(attention):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, *args: Any, **others: Any) -> tuple[Tensor, None]:
            advance_cache(
                self, hidden_states, others.get("past_key_values"), others.get("key_value_states")
            )
            return output_without_heads(self, hidden_states), None

    return HeadlessAttention


def silence(core: nn.Module) -> None:
    """`Family.silence` of most families: replace the class of an attention module by one that runs without heads."""
    attention: Any = type(core)
    core.__class__ = headless_class(attention)


def output_without_heads(core: nn.Module, hidden: Tensor) -> Tensor:
    """The bias of the output projection, for every token; width 0 if the module contains no output projection."""
    from transformers.pytorch_utils import Conv1D

    for module in core.modules():
        if not isinstance(module, nn.Linear | Conv1D):
            continue
        weight = module.weight if isinstance(module, Conv1D) else module.weight.T
        width, out = weight.shape
        if width == 0 and out > 0:  # only the output projection has outputs but no inputs
            if isinstance(module, nn.Linear):
                output: Tensor = module(hidden[..., :0])
                return output
            # Conv1D cannot take inputs of width 0
            zeros = hidden.new_zeros(*hidden.shape[:-1], out)
            return zeros if module.bias is None else zeros + module.bias
    return hidden[..., :0]


def advance_cache(core: nn.Module, hidden: Tensor, past: Any, other_side: Tensor | None) -> int:
    """Count these tokens in a cache of earlier tokens, and return the number of tokens that it had before.

    The model reads lengths from the cache of any layer, so a layer without heads must update its cache too.

    hidden      [batch, token, width]
    past        the cache; None if there is none
    other_side  the encoder's states in cross attention, which is not cached here
    """
    cache = getattr(past, "self_attention_cache", past)
    if cache is None or other_side is not None:
        return 0
    before = int(cache.get_seq_length(core.layer_idx))
    stub = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)  # [batch, head, token, width]
    cache.update(stub, stub, core.layer_idx)
    return before
