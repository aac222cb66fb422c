"""Which tokens did the model go by? The relevance of every token of one input for what the model says, by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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

TOGETHER = 2048  # tokens in one backward pass


@dataclass(frozen=True)
class RelevanceMap:
    """The relevances of one input's tokens.

    maps     {stack: [layer, target, token]}: what of a target's prediction came by a token as it enters the layer;
             of layer 0: by its embeddings. In an encoder-decoder `cross` has the tokens of the source and `decoder`
             those of the target
    targets  the positions whose predictions were taken; (0,) for a classifier's one
    said     [target]: what was shared out; under voita's rules a row of layer 0 sums to it but for the biases
    what     what that is, in words
    """

    maps: Mapping[str, NDArray[np.float64]]
    targets: tuple[int, ...]
    said: NDArray[np.float64]
    what: str


def relevance_map(
    model: AttentionModel,
    batch: Batch,
    *,
    targets: Sequence[int] | None = None,
    rules: Rules = "voita",
) -> RelevanceMap:
    """Of one input, a batch of one sequence; targets are positions, by default all."""
    model.check_evaluating()
    check_supported(model)
    what, say = _prediction(model)
    side = batch.inputs.get("decoder_input_ids", batch.inputs["input_ids"])
    if side.shape[0] != 1:
        raise HeadscopeError(f"a batch of {side.shape[0]} sequences", expected="one sequence")
    places = tuple(
        targets if targets is not None else range(side.shape[1] if "place" in what else 1)
    )
    wrong = [place for place in places if not 0 <= place < side.shape[1]]
    if wrong or not places:
        raise HeadscopeError(
            f"position {wrong[0]} is not in this input" if wrong else "no position was named",
            where="target",
            expected=f"0 to {side.shape[1] - 1}",
        )
    length = sum(
        value.shape[1] for name, value in batch.inputs.items() if name.endswith("input_ids")
    )
    group = max(1, TOGETHER // length)
    parts = [
        _part(model, batch, places[i : i + group], say, rules) for i in range(0, len(places), group)
    ]
    maps = {
        stack: np.concatenate([part[0][stack] for part in parts], axis=1) for stack in parts[0][0]
    }
    return RelevanceMap(maps, places, np.concatenate([part[1] for part in parts]), what)


Inputs = Mapping[str, Tensor]
Say = Callable[[Inputs, Sequence[int]], Tensor]


def _prediction(model: AttentionModel) -> tuple[str, Say]:
    """What this kind of model says at a place, in words and as a function of inputs, one place a sequence."""
    kind = type(model.model).__name__
    if model.model.get_output_embeddings() is not None:
        return "the largest logit at a place", lambda inputs, places: largest_logit_at(
            model, inputs, places
        )
    if "SequenceClassification" in kind:
        return "the logit of the predicted class", lambda inputs, places: largest_logit(
            model(inputs).logits
        )
    if model.model.base_model is not model.model:
        raise HeadscopeError(
            f"what {kind} says is no single number",
            where=model.name,
            expected="a language model, a classifier of sequences or a bare model",
        )

    def of_state(inputs: Inputs, places: Sequence[int]) -> Tensor:
        states = model(inputs)[0]
        return component_along(states[range(len(places)), list(places)])

    return "the last state at a place, in its own direction", of_state


def _part(
    model: AttentionModel, batch: Batch, places: Sequence[int], say: Say, rules: Rules
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """{stack: [layer, target, token]} and [target] of some targets: as many copies of the input."""
    inputs = {
        name: value.repeat_interleave(len(places), dim=0) for name, value in batch.inputs.items()
    }
    accounts = RelevanceSums(model, len(places))
    with linearise(model, rules, accounts), accounts.kept():
        said = say(inputs, places)
        accounts.settle(said)
    if rules == "voita":
        check_adds_up(model, accounts, said)
    maps = {}
    for stack, count in accounts.layers().items():
        rows = [
            accounts.inputs[stack],
            *(accounts.enters[stack, layer] for layer in range(1, count)),
        ]
        name = "cross" if model.is_encoder_decoder and stack == "encoder" else stack
        maps[name] = torch.stack(rows).numpy()
    return maps, said.detach().double().cpu().numpy()
