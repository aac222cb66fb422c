"""Value zeroing: how far the states after a layer turn if the values of a token are set to zero in it."""

from __future__ import annotations

from headscope.analysis.token_map_result import TokenMap
from headscope.model import value_zeroing
from headscope.model.one_input import OneInput

ONE_PASS_PER_TOKEN = True
HOW = (
    "Value zeroing (Mohebbi 2023): how much a token's state after the layer changes (1 − cosine) if another token's "
    "value vectors are set to zero in this layer; a row sums to 1 unless nothing changes it."
)


def compute_map(text: OneInput) -> TokenMap:
    """Value zeroing of every token of one input."""
    maps = value_zeroing.value_zeroing(text.model, text.batch)
    return TokenMap("value-zeroing", maps, HOW, text.tokens(maps))
