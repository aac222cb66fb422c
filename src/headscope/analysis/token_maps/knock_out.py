"""Knock-out: how far last states turn when no token attends to a token in a layer."""

from __future__ import annotations

from headscope.model.one_input import OneInput
from headscope.model.token_map import TokenMap
from headscope.model.value_zeroing import knockout_effects

FORMS = ("given to others", "gone")
HOW = (
    "Knock-out: how far a token's last state turns (1 − cosine) when none, itself neither, sees another one in this "
    "layer. What went there is given to others, or gone. The first puts a sink's large weight elsewhere: where the "
    "two differ much, it shows what the weight does at its new place, not what the token gave."
)


def compute_map(text: OneInput) -> TokenMap:
    """Knock-outs of every token of one input, with and without renormalised rows."""
    maps = knockout_effects(text.model, text.batch)
    return TokenMap("knock-out", maps, HOW, text.tokens(maps), FORMS, shares=False)
