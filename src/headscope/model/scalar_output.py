"""One number that summarises a model's output for one input, so that gradients of it can be taken.

A classifier's largest logit. For models with an output for every token, the sum of the tokens' largest logits, or that
of one token. For a bare encoder, the length of its vector of the text (`model.reading`) along its own direction; for a
pair, along the direction of the other text's vector. Lengths are held constant, as in the gradient of a cosine.
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
    """The number, and what it is, in words. target: the token it is about, counted from 0; all by default."""
    output = model(batch)
    logits = getattr(output, "logits", None)
    if logits is None:
        return _of_states(model, batch, output, target)
    if logits.dim() == 2 and target is None:
        return logits.max(dim=-1).values.sum(), "the logit of the class it predicts"
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
    states: Tensor | None = getattr(output, "last_hidden_state", None)
    tokens = batch.layout.decoder if "decoder_input_ids" in batch.inputs else batch.layout.encoder
    tokens = tokens or batch.layout.decoder
    if states is None or tokens is None:
        raise HeadscopeError(
            f"{type(model.model).__name__} gives neither logits nor its tokens' states",
            where=model.name,
            expected="a classifier, a language model or a bare encoder",
        )
    if target is not None:
        state = states[:, _check_target(target, states.shape[1])]
        return component_along(state).sum(), f"the state of token {target} in its own direction"
    reading = model.reading
    reading.check(model.name)
    if tokens.segments is None or not bool((tokens.segments[0] == 1).any()):
        vector = reading.vectors(states, tokens.real, hold_lengths=True)
        return component_along(vector).sum(), f"{reading.in_words} in its own direction"
    is_second = tokens.segments == 1
    first, second = (
        reading.vectors(states, tokens.real & of, hold_lengths=True)[0]
        for of in (~is_second, is_second)
    )
    what = f"the dot product of the two texts' vectors, each {reading.in_words}"
    return first @ second / (_length(first) * _length(second)), what


def _length(vector: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vector.detach())
    return length.clamp_min(torch.finfo(vector.dtype).tiny)


def _check_target(target: int, tokens: int) -> int:
    if not 0 <= target < tokens:
        raise HeadscopeError(
            f"there is no token {target}", where="target", expected=f"0 to {tokens - 1}"
        )
    return target
