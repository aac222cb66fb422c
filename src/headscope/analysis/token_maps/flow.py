"""Attention flow: the maximum flow from each token through the layers down to each input token."""

from __future__ import annotations

from headscope.analysis.token_map_result import TokenMap
from headscope.model import flow, rollout
from headscope.model.one_input import OneInput


def compute_map(text: OneInput) -> TokenMap:
    """Flow of one input; each row is divided by its sum."""
    maps = flow.flow(text.weights, text.model.sites)
    how = flow.HOW.format(sums=rollout.ACROSS if "cross" in maps else rollout.WITHIN)
    return TokenMap("flow", maps, how, text.tokens(maps))
