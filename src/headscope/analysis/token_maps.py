"""token_map, the verb: one input, and how much its tokens draw on each other, by the lens that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscope.config.requirements import check_effects
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError, choices
from headscope.heads import Site
from headscope.model import flow, gradient_rollout, rollout, value_zeroing
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.model.relevance.maps import relevance_map
from headscope.model.relevance.rules import RULES
from headscope.model.token_map import TokenMap, Weights, tokens_of, weights_of
from headscope.model.tokens import Batch

RELEVANCE = (
    "Relevance: how much of what the model says ({what}{only}) came by a token as it enters the layer; into layer 0, "
    "by its embeddings. Below 0 it speaks against it. By voita's rules a row of layer 0{across} "
    "sums to what is said but for the biases' part."
)
VALUE_ZEROING = (
    "Value zeroing (Mohebbi 2023): how far a token's state at the layer's output turns (1 − cosine) when another "
    "token's values are zero in this layer; a row sums to 1, unless nothing turns it."
)
KNOCK_OUT = (
    "Knock-out: how far a token's last state turns (1 − cosine) when none, itself neither, sees another one in this "
    "layer. What went there is given to others, or gone. The first puts a sink's large weight elsewhere: where the "
    "two differ much, it shows what the weight does at its new place, not what the token gave."
)


def token_map(
    model: AttentionModel | str | Path,
    first: str,
    second: str | None = None,
    *,
    by: str = "rollout",
    target: int | None = None,
    max_length: int | None = None,
) -> TokenMap:
    """How much the tokens of one text or pair (for an encoder-decoder: a source and its target) draw on each other.

    by      rollout, flow, gradient-rollout, relevance, value-zeroing or knock-out
    target  where gradients are taken of what the model says: of which token; of all, or of the whole, by default
    """
    check_token_lens(by)
    check_effects("look", {"lens": by, "target": target})
    model = as_model(model)
    return Input(model, encode_input(model, first, second, max_length=max_length), target).by(by)


def check_token_lens(by: str, where: str = "by") -> None:
    """Refuse what is no token map, with the list of those there are."""
    if by not in TOKEN_LENSES:
        raise HeadscopeError(
            f'"{by}" is no token map', where=where, expected=choices(by, TOKEN_LENSES)
        )


@dataclass
class Input:
    """One input of a model; what several lenses need of it is computed once."""

    model: AttentionModel
    batch: Batch
    target: int | None = None

    @cached_property
    def weights(self) -> dict[Site, NDArray[np.float64]]:
        return weights_of(self.model, self.batch)

    @cached_property
    def gradients(self) -> tuple[Weights, Weights, str]:
        return gradient_rollout.attention_gradients(self.model, self.batch, self.target)

    def by(self, lens: str) -> TokenMap:
        return TOKEN_LENSES[lens](self)

    def tokens(
        self, stacks: dict[str, NDArray[np.float32]]
    ) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {stack: tokens_of(self.model, self.batch, stack) for stack in stacks}


def _rollout(given: Input) -> TokenMap:
    maps = rollout.rollout(given.weights, given.model.sites)
    how = rollout.HOW.format(sums=rollout.ACROSS if "cross" in maps else rollout.WITHIN)
    if not rollout.is_masked(given.weights):
        return TokenMap("rollout", maps, how, given.tokens(maps))
    baseline = rollout.rollout(rollout.even(given.weights), given.model.sites)
    maps = {
        stack: np.concatenate([cells, baseline[stack]], axis=1) for stack, cells in maps.items()
    }
    return TokenMap("rollout", maps, how + rollout.BASELINE, given.tokens(maps), rollout.FORMS)


def _flow(given: Input) -> TokenMap:
    maps = flow.flow(given.weights, given.model.sites)
    how = flow.HOW.format(sums=rollout.ACROSS if "cross" in maps else rollout.WITHIN)
    return TokenMap("flow", maps, how, given.tokens(maps))


def _gradient_rollout(given: Input) -> TokenMap:
    weights, gradients, said = given.gradients
    maps = gradient_rollout.gradient_rollout(weights, gradients, given.model.sites)
    how = gradient_rollout.HOW.format(said=said)
    return TokenMap("gradient-rollout", maps, how, given.tokens(maps), shares=False)


def _value_zeroing(given: Input) -> TokenMap:
    maps = value_zeroing.value_zeroing(given.model, given.batch)
    return TokenMap("value-zeroing", maps, VALUE_ZEROING, given.tokens(maps))


def _knock_out(given: Input) -> TokenMap:
    maps = value_zeroing.knocked_out(given.model, given.batch)
    return TokenMap(
        "knock-out", maps, KNOCK_OUT, given.tokens(maps), ("given to others", "gone"), shares=False
    )


def _relevance(given: Input) -> TokenMap:
    if given.model.is_encoder_decoder and "decoder_input_ids" not in given.batch.inputs:
        raise HeadscopeError(
            f"{given.model.name} says nothing yet of a source alone",
            where="lens relevance",
            expected="a source and its target",
            fix="Give the target as the second text",
        )
    targets = None if given.target is None else [given.target]
    found = [
        relevance_map(given.model, given.batch, targets=targets, rules=rules) for rules in RULES
    ]
    maps = {}
    for stack, cells in found[0].maps.items():
        sides = given.batch.layout.sides(stack)
        assert sides is not None
        maps[stack] = np.zeros(
            (len(cells), len(RULES), sides[0].length, sides[1].length), dtype=np.float32
        )
        for form, one in enumerate(found):
            maps[stack][:, form, list(one.targets)] = one.maps[stack]
    places = found[0].targets
    only = "" if len(places) > 1 else f"; token {places[0]} has the one row that is filled"
    across = ", of source and target together," if "cross" in maps else ""
    how = RELEVANCE.format(what=found[0].what, only=only, across=across)
    return TokenMap("relevance", maps, how, given.tokens(maps), RULES, shares=False)


TOKEN_LENSES: dict[str, Callable[[Input], TokenMap]] = {
    "rollout": _rollout,
    "flow": _flow,
    "gradient-rollout": _gradient_rollout,
    "relevance": _relevance,
    "value-zeroing": _value_zeroing,
    "knock-out": _knock_out,
}


def encode_input(
    model: AttentionModel, first: str, second: str | None, *, max_length: int | None = None
) -> Batch:
    """One text or pair as the model reads it; longer than `max_length` is refused."""
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise HeadscopeError(
            "not a text", where="look", expected='a text, or two: look(model, "a text", "another")'
        )
    encoder = Encoder(model, max_length=max_length, long="skip")
    where = f'text "{first if len(first) <= 40 else first[:39] + "…"}"'
    sequences = list(encoder.encode([Example(first, second, where)], start=0))
    if sequences:
        return collate(model, sequences)
    if "too long" not in encoder.counts.skipped:
        raise HeadscopeError("there are no tokens in it", where=where, expected="some text")
    apart = model.is_encoder_decoder and second is not None
    texts = [(first, None), (second, None)] if apart else [(first, second)]
    length = max(len(encoder.tokenizer(*text, verbose=False)["input_ids"]) for text in texts)
    more = (
        f", or raise `max_length` (up to {encoder.limit})"
        if encoder.max_length < encoder.limit
        else ""
    )
    raise HeadscopeError(
        f"{length} tokens",
        where=where,
        expected=f"at most {encoder.max_length} tokens",
        fix=f"Shorten it{more}",
    )
