"""Rollout of attention weighted by its gradient."""

from __future__ import annotations

from headscope.analysis.token_map_result import TokenMap
from headscope.model import gradient_rollout
from headscope.model.one_input import OneInput

TAKES_TARGET = True
TAKES_POOLING = True


def compute_map(text: OneInput) -> TokenMap:
    """Gradient-weighted rollout of one input."""
    weights, gradients, output = text.gradients
    maps = gradient_rollout.gradient_rollout(weights, gradients, text.model.sites)
    how = gradient_rollout.HOW.format(output=output)
    return TokenMap("gradient-rollout", maps, how, text.tokens(maps), shares=False)
