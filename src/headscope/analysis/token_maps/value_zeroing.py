"""Value zeroing: how far states turn in a layer without the values of a token."""

from __future__ import annotations

from headscope.model import value_zeroing
from headscope.model.one_input import OneInput
from headscope.model.token_map import TokenMap

HOW = (
    "Value zeroing (Mohebbi 2023): how far a token's state at the layer's output turns (1 − cosine) when another "
    "token's values are zero in this layer; a row sums to 1, unless nothing turns it."
)


def compute_map(text: OneInput) -> TokenMap:
    """Value zeroing of every token of one input."""
    maps = value_zeroing.value_zeroing(text.model, text.batch)
    return TokenMap("value-zeroing", maps, HOW, text.tokens(maps))
