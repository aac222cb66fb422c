"""One number that summarises a model's output for one input, so that its gradients can be computed.

- classifier: the largest logit
- model with logits for every token: the largest logit at one token, or the sum of the largest logits of all tokens
- bare encoder, one text: the text's vector (`model.reading`) times its own direction, divided by its length
- bare encoder, a pair of texts: the cosine of the two vectors

Lengths are constants in the backward pass, so that the gradient of a text's own direction is not 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.targets import component_along
from headscope.model.tokens import Batch


def scalar_output(
    model: AttentionModel, batch: Batch, target: int | None = None
) -> tuple[Tensor, str]:
    """The number, and a description of it.

    target  a token, counted from 0, whose output is used; None for all tokens
    """
    output = model(batch)
    logits = getattr(output, "logits", None)
    if logits is None:
        return _of_states(model, batch, output, target)
    if logits.dim() == 2 and target is None:
        return logits.max(dim=-1).values.sum(), "the logit of the predicted class"
    if logits.dim() != 3:
        raise HeadscopeError(
            f"{type(model.model).__name__} has one output for the whole input, not for single tokens",
            where="target",
            expected="no target",
        )
    largest = logits[0].max(dim=-1).values
    if target is None:
        return largest.sum(), "the sum of every token's largest logit"
    return largest[_check_target(target, len(largest))], f"the largest logit at token {target}"


def _of_states(
    model: AttentionModel, batch: Batch, output: Any, target: int | None
) -> tuple[Tensor, str]:
    """The same for a model without logits, from the states of its tokens."""
    states: Tensor | None = getattr(output, "last_hidden_state", None)
    tokens = batch.layout.decoder if "decoder_input_ids" in batch.inputs else batch.layout.encoder
    tokens = tokens or batch.layout.decoder
    if states is None or tokens is None:
        raise HeadscopeError(
            f"{type(model.model).__name__} returns neither logits nor the states of its tokens",
            where=model.name,
            expected="a classifier, a language model or a bare encoder",
        )
    if target is not None:
        state = states[:, _check_target(target, states.shape[1])]
        return component_along(
            state
        ).sum(), f"the final state of token {target}, projected on its own direction"
    reading = model.reading
    reading.check(model.name)
    if tokens.segments is None or not bool((tokens.segments[0] == 1).any()):
        vector = reading.vectors(states, tokens.real, hold_lengths=True)
        return component_along(
            vector
        ).sum(), f"the text's vector, projected on its own direction (vector: {reading.in_words})"
    is_second = tokens.segments == 1
    first, second = (
        reading.vectors(states, tokens.real & is_in_text, hold_lengths=True)[0]
        for is_in_text in (~is_second, is_second)
    )
    what = f"the cosine similarity of the two texts' vectors (vector: {reading.in_words})"
    return first @ second / (_length(first) * _length(second)), what


def _length(vector: Tensor) -> Tensor:
    """The length of a vector, as a constant in the backward pass."""
    length: Tensor = torch.linalg.vector_norm(vector.detach())
    return length.clamp_min(torch.finfo(vector.dtype).tiny)


def _check_target(target: int, tokens: int) -> int:
    """The target; raises if there is no such token."""
    if not 0 <= target < tokens:
        raise HeadscopeError(
            f"there is no token {target}", where="`target`", expected=f"0 to {tokens - 1}"
        )
    return target
