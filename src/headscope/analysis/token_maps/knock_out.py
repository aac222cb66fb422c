"""Knock-out: how far the last states turn if no token can attend to a given token in a layer."""

from __future__ import annotations

from headscope.analysis.token_map_result import TokenMap
from headscope.model.one_input import OneInput
from headscope.model.value_zeroing import knockout_effects

ONE_PASS_PER_TOKEN = True
FORMS = ("renormalised", "removed")
HOW = (
    "Knock-out: how much a token's final state changes (1 − cosine) if no token, including itself, can attend to a "
    "given one in this layer. The weights on it are either renormalised over the other tokens, or removed. "
    "Renormalising gives the weight of the removed token to the others. If the two maps differ much, the first shows "
    "mostly where this weight went, not what the removed token contributes."
)


def compute_map(text: OneInput) -> TokenMap:
    """Knock-outs of every token of one input, with and without renormalised rows."""
    maps = knockout_effects(text.model, text.batch)
    return TokenMap("knock-out", maps, HOW, text.tokens(maps), FORMS, shares=False)
