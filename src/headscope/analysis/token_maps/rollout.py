"""Attention rollout. If a mask hides tokens from others, also the rollout of uniform attention, as a baseline."""

from __future__ import annotations

import numpy as np

from headscope.analysis.token_map_result import TokenMap
from headscope.model import rollout
from headscope.model.one_input import OneInput


def compute_map(text: OneInput) -> TokenMap:
    """Rollout of one input; with two forms (rollout, baseline) if a mask hides tokens."""
    maps = rollout.rollout(text.weights, text.model.sites)
    how = rollout.HOW.format(sums=rollout.ACROSS if "cross" in maps else rollout.WITHIN)
    if not rollout.is_masked(text.weights):
        return TokenMap("rollout", maps, how, text.tokens(maps))
    baseline = rollout.rollout(rollout.uniform_weights(text.weights), text.model.sites)
    maps = {
        stack: np.concatenate([cells, baseline[stack]], axis=1) for stack, cells in maps.items()
    }
    return TokenMap("rollout", maps, how + rollout.BASELINE, text.tokens(maps), rollout.FORMS)
