"""The relevance of every token of one input for the model's output, at each layer."""

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
    """The relevances of the tokens of one input.

    maps     {stack: [layer, target, token]}: the part of the prediction at a target position that passed through the
             state of a token at the layer's input; for layer 0, through its embeddings. In an encoder-decoder, `cross`
             is about the source tokens and `decoder` about the tokens of the decoder
    targets  the positions of the predictions; (0,) for a classifier
    outputs  [target]: the predictions. With the rules "voita", the relevances of layer 0 (in an encoder-decoder, of
             `cross` and `decoder` together) and of the biases sum to the prediction
    what     a description of the predicted number, such as "the logit of the predicted class"
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
    """The relevances of one input.

    batch    a batch of one sequence
    targets  the positions whose predictions are explained; by default all, or (0,) for a classifier
    """
    model.check_evaluating()
    check_supported(model)
    what, predict = _prediction(model)
    # [1, token]: the tokens at which predictions are made
    ids = batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"])
    if ids.shape[0] != 1:
        raise HeadscopeError(f"a batch of {ids.shape[0]} sequences", expected="one sequence")
    if targets is None:
        targets = range(ids.shape[1] if "position" in what else 1)
    wrong = [position for position in targets if not 0 <= position < ids.shape[1]]
    if wrong or not targets:
        raise HeadscopeError(
            f"position {wrong[0]} is not in this input" if wrong else "no position was named",
            where="target",
            expected=f"0 to {ids.shape[1] - 1}",
        )
    lengths = [value.shape[1] for name, value in batch.inputs.items() if name.endswith("input_ids")]
    size = max(1, BATCH_TOKENS // sum(lengths))  # targets per backward pass
    groups = [targets[i : i + size] for i in range(0, len(targets), size)]
    maps, outputs = zip(
        *(_explain_targets(model, batch, group, predict, rules) for group in groups), strict=True
    )
    joined = {stack: np.concatenate([cells[stack] for cells in maps], axis=1) for stack in maps[0]}
    return RelevanceMap(joined, tuple(targets), np.concatenate(outputs), what)


Inputs = Mapping[str, Tensor]
# (inputs, a position per sequence) -> [sequence]
Predict = Callable[[Inputs, Sequence[int]], Tensor]


def _prediction(model: AttentionModel) -> tuple[str, Predict]:
    """What a model of this class predicts: a description, and a function that computes it."""
    class_name = type(model.model).__name__
    if model.model.get_output_embeddings() is not None:
        return "the largest logit at a position", partial(largest_logit_at, model)
    if "SequenceClassification" in class_name:
        return "the logit of the predicted class", lambda inputs, _: largest_logit(
            model(inputs).logits
        )
    if model.model.base_model is not model.model:
        raise HeadscopeError(
            f"the output of {class_name} is not a single number",
            where=model.name,
            expected="a language model, a classifier of sequences or a bare model",
        )

    def state_along_itself(inputs: Inputs, positions: Sequence[int]) -> Tensor:
        states = model(inputs)[0]  # [sequence, token, width]
        return component_along(states[range(len(positions)), list(positions)])

    return "the final state at a position, projected on its own direction", state_along_itself


def _explain_targets(
    model: AttentionModel, batch: Batch, positions: Sequence[int], predict: Predict, rules: Rules
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """The maps {stack: [layer, target, token]} and predictions [target] of some target positions.

    One backward pass gives the relevances for all of them, since each has its own copy of the input in the batch.
    """
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
        # [layer] of [target, token]; layer 0 is about the embeddings, before their sum and norm.
        entering = [sums.inputs[stack], *(sums.enters[stack, layer] for layer in range(1, layers))]
        name = "cross" if model.is_encoder_decoder and stack == "encoder" else stack
        maps[name] = torch.stack(entering).numpy()
    return maps, outputs.detach().double().cpu().numpy()
