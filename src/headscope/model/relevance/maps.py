"""The relevance of every token of one input for the model's output, by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.relevance.rules import Rules, linearise
from headscope.model.relevance.sums import RelevanceSums
from headscope.model.relevance.supported import check_adds_up, check_supported
from headscope.model.relevance.targets import component_along, largest_logit, largest_logit_at
from headscope.model.tokens import Batch

BATCH_TOKENS = 2048  # tokens in one backward pass


@dataclass(frozen=True)
class RelevanceMap:
    """The relevances of one input's tokens.

    maps     {stack: [layer, target, token]}: the part of a target's prediction that came through a token's state at
             the layer's input; for layer 0, through its embeddings. In an encoder-decoder `cross` has the tokens of
             the source and `decoder` those of the target
    targets  the positions of the predictions; (0,) for a classifier
    outputs  [target]: the predictions; under voita's rules a row of layer 0 and the biases sum to them
    what     what these numbers are, in words
    """

    maps: Mapping[str, NDArray[np.float64]]
    targets: tuple[int, ...]
    outputs: NDArray[np.float64]
    what: str


def relevance_map(
    model: AttentionModel,
    batch: Batch,
    *,
    targets: Sequence[int] | None = None,
    rules: Rules = "voita",
) -> RelevanceMap:
    """The relevances of one input, a batch of one sequence; targets are positions, by default all."""
    model.check_evaluating()
    check_supported(model)
    what, predict = _prediction(model)
    side = batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"])
    if side.shape[0] != 1:
        raise HeadscopeError(f"a batch of {side.shape[0]} sequences", expected="one sequence")
    if targets is None:
        targets = range(side.shape[1] if "place" in what else 1)
    wrong = [position for position in targets if not 0 <= position < side.shape[1]]
    if wrong or not targets:
        raise HeadscopeError(
            f"position {wrong[0]} is not in this input" if wrong else "no position was named",
            where="target",
            expected=f"0 to {side.shape[1] - 1}",
        )
    length = sum(ids.shape[1] for name, ids in batch.inputs.items() if name.endswith("input_ids"))
    group = max(1, BATCH_TOKENS // length)
    groups = [targets[i : i + group] for i in range(0, len(targets), group)]
    maps, outputs = zip(
        *(_part(model, batch, positions, predict, rules) for positions in groups), strict=True
    )
    joined = {stack: np.concatenate([part[stack] for part in maps], axis=1) for stack in maps[0]}
    return RelevanceMap(joined, tuple(targets), np.concatenate(outputs), what)


Inputs = Mapping[str, Tensor]
Predict = Callable[[Inputs, Sequence[int]], Tensor]


def _prediction(model: AttentionModel) -> tuple[str, Predict]:
    """This kind of model's prediction, in words and as a function of inputs with one position for each sequence."""
    kind = type(model.model).__name__
    if model.model.get_output_embeddings() is not None:
        return "the largest logit at a place", partial(largest_logit_at, model)
    if "SequenceClassification" in kind:
        return "the logit of the predicted class", lambda inputs, _: largest_logit(
            model(inputs).logits
        )
    if model.model.base_model is not model.model:
        raise HeadscopeError(
            f"what {kind} says is no single number",
            where=model.name,
            expected="a language model, a classifier of sequences or a bare model",
        )

    def of_state(inputs: Inputs, positions: Sequence[int]) -> Tensor:
        states = model(inputs)[0]
        return component_along(states[range(len(positions)), list(positions)])

    return "the last state at a place, in its own direction", of_state


def _part(
    model: AttentionModel, batch: Batch, positions: Sequence[int], predict: Predict, rules: Rules
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """{stack: [layer, target, token]} and [target] of some targets, each with its own copy of the input."""
    count = len(positions)
    inputs = {name: value.repeat_interleave(count, dim=0) for name, value in batch.inputs.items()}
    sums = RelevanceSums(model, count)
    with linearise(model, rules, sums), sums.follow():
        outputs = predict(inputs, positions)
        sums.backward(outputs)
    if rules == "voita":
        check_adds_up(model, sums, outputs)
    maps = {}
    for stack, layers in sums.layers().items():
        entering = [sums.inputs[stack], *(sums.enters[stack, layer] for layer in range(1, layers))]
        name = "cross" if model.is_encoder_decoder and stack == "encoder" else stack
        maps[name] = torch.stack(entering).numpy()
    return maps, outputs.detach().double().cpu().numpy()
