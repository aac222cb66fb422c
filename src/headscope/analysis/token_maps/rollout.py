"""Attention rollout, next to that of even attention where some tokens do not see all others."""

from __future__ import annotations

import numpy as np

from headscope.model import rollout
from headscope.model.one_input import OneInput
from headscope.model.token_map import TokenMap


def compute_map(text: OneInput) -> TokenMap:
    """Rollout of one input; two forms if a mask shapes it."""
    maps = rollout.rollout(text.weights, text.model.sites)
    how = rollout.HOW.format(sums=rollout.ACROSS if "cross" in maps else rollout.WITHIN)
    if not rollout.is_masked(text.weights):
        return TokenMap("rollout", maps, how, text.tokens(maps))
    baseline = rollout.rollout(rollout.uniform_weights(text.weights), text.model.sites)
    maps = {
        stack: np.concatenate([cells, baseline[stack]], axis=1) for stack, cells in maps.items()
    }
    return TokenMap("rollout", maps, how + rollout.BASELINE, text.tokens(maps), rollout.FORMS)
