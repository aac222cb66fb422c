"""Rollout of gradient-weighted attention (Chefer et al. 2021b), for self attention and cross attention.

Each site has a matrix M, the mean over heads of (A · ∂F/∂A)⁺: A are the weights, F is a scalar output of the model, ⁺
sets negative cells to 0. The relevance R of a stack starts as the identity, and every site adds M·R. For cross
attention, M is multiplied by the row-normalised relevances of the decoder and the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Site
from headscope.model.one_input import Weights
from headscope.model.rollout import in_forward_order
from headscope.model.value_zeroing import normalize_rows

HOW = (
    "Gradient-weighted rollout (Chefer 2021). Every layer has one matrix: attention × gradient with negative numbers "
    "set to 0, averaged over heads. These matrices are accumulated over the layers, starting from the identity, which "
    "is subtracted at the end. The gradient is that of {output}. Rows need not sum to 1."
)


def gradient_rollout(
    weights: Weights, gradients: Weights, sites: Iterable[Site]
) -> dict[str, NDArray[np.float32]]:
    """{stack: [layer, 1, query, key]}: the relevance accumulated up to each layer, without the initial identity."""
    lengths = {site.stack: cells.shape[1:] for site, cells in weights.items()}
    own: dict[str, NDArray[np.float64]] = {  # relevance within the encoder and within the decoder
        stack: np.eye(lengths[stack][0]) for stack in ("encoder", "decoder") if stack in lengths
    }
    # [decoder token, encoder token]
    across = np.zeros(lengths["cross"]) if "cross" in lengths else None
    by_stack: dict[str, list[NDArray[np.float64]]] = {}
    for site in in_forward_order(sites, lengths):
        mean = np.zeros(lengths[site.stack])
        if site in weights:
            mean = np.maximum(weights[site] * gradients[site], 0).mean(axis=0)
        if site.stack == "cross":
            # R_cross += norm(R_decoder)ᵀ · mean · norm(R_encoder)
            assert across is not None
            across = across + _normalize(own["decoder"]).T @ mean @ _normalize(own["encoder"])
            by_stack.setdefault("cross", []).append(across)
            continue
        if site.stack == "decoder" and across is not None:
            across = across + mean @ across
        own[site.stack] = own[site.stack] + mean @ own[site.stack]
        by_stack.setdefault(site.stack, []).append(own[site.stack] - np.eye(len(mean)))
    return {
        stack: np.stack(layers)[:, None].astype(np.float32) for stack, layers in by_stack.items()
    }


def _normalize(relevance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The identity plus the relevance beyond the identity, with rows divided by their sums (rows of zeros stay 0)."""
    identity = np.eye(len(relevance))
    return normalize_rows(relevance - identity) + identity
