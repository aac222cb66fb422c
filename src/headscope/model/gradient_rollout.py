"""Rollout of gradient-weighted attention (Chefer et al. 2021b), for self attention and from decoder to encoder.

Of each site the mean over heads of (A · ∂F/∂A)⁺ is taken, F being what the model says (`said`); relevance starts at the
identity and every site adds its mean times what is there. Where a decoder attends to the encoder, what both sides have
gathered so far, its rows normalised, stands on either side.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Site
from headscope.model.one_input import Weights

HOW = (
    "Gradient-weighted rollout (Chefer 2021): the mean over heads of attention times the gradient of {said}, what is "
    "below 0 left out, gathered over the layers, the 1 that a token starts from taken off. Rows have no given sum."
)


def gradient_rollout(
    weights: Weights, gradients: Weights, sites: Iterable[Site]
) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: the relevance gathered up to each layer."""
    lengths = {site.stack: cells.shape[1:] for site, cells in weights.items()}
    own: dict[str, NDArray[np.float64]] = {
        stack: np.eye(lengths[stack][0]) for stack in ("encoder", "decoder") if stack in lengths
    }
    across = np.zeros(lengths["cross"]) if "cross" in lengths else None
    found: dict[str, list[NDArray[np.float64]]] = {}
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    there = [site for site in sites if site.stack in lengths and site.stack in order]
    for site in sorted(
        there, key=lambda site: (site.stack != "encoder", site.layer, order[site.stack])
    ):
        mean = np.zeros(lengths[site.stack])
        if site in weights:
            mean = np.maximum(weights[site] * gradients[site], 0).mean(axis=0)
        if site.stack == "cross":
            assert across is not None
            across = across + _normalised(own["decoder"]).T @ mean @ _normalised(own["encoder"])
            found.setdefault("cross", []).append(across)
            continue
        if site.stack == "decoder" and across is not None:
            across = across + mean @ across
        own[site.stack] = own[site.stack] + mean @ own[site.stack]
        found.setdefault(site.stack, []).append(own[site.stack] - np.eye(len(mean)))
    return {stack: np.stack(layers)[:, None].astype(np.float32) for stack, layers in found.items()}


def _normalised(gathered: NDArray[np.float64]) -> NDArray[np.float64]:
    """What was gathered beyond the identity with rows that sum to 1 (a row of nothing stays so), and the identity."""
    start = np.eye(len(gathered))
    beyond = gathered - start
    sums = beyond.sum(axis=1, keepdims=True)
    return beyond / np.where(sums > 0, sums, 1) + start
