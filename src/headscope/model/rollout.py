"""Attention rollout (Abnar and Zuidema 2020): attention followed through all layers down to the input tokens.

A layer is half the mean attention of its heads and half the residual connection; the matrices of the layers are
multiplied. In an encoder-decoder one matrix covers the tokens of both sides: a decoder layer first mixes its own
tokens, then takes half from the encoder's last layer. A target token's shares of target and source together sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Site
from headscope.model.one_input import Weights

HOW = (
    "Attention rollout (Abnar 2020): each layer is the mean attention of its heads, averaged with the residual "
    "connection; the layers are multiplied. A number is the share of an input token in a token after the layer{sums}."
)
BASELINE = (
    " For comparison: rollout of uniform attention over all visible tokens. It shows the effect of the mask and the "
    "residual connection alone, which in a decoder accumulates on the first tokens; only the difference is due to the "
    "heads."
)
FORMS = ("attention", "uniform attention")
WITHIN = "; a row sums to 1"
ACROSS = "; a row sums to 1, for a target token over source and target together"


@dataclass(frozen=True)
class RolloutStep:
    """One site as a matrix over all tokens, the encoder's before the decoder's; rows sum to 1."""

    site: Site
    matrix: NDArray[np.float64]


@dataclass(frozen=True)
class Sides:
    """The number of tokens of the encoder and the decoder; 0 if there is none."""

    encoder: int
    decoder: int

    def rows(self, stack: str) -> slice:
        return slice(0, self.encoder) if stack == "encoder" else slice(self.encoder, None)

    def columns(self, stack: str) -> slice:
        return slice(self.encoder, None) if stack == "decoder" else slice(0, self.encoder)


def in_forward_order(sites: Iterable[Site], lengths: Mapping[str, object]) -> list[Site]:
    """The sites of the stacks that attended, in the order of a forward pass."""
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    attended = [site for site in sites if site.stack in lengths and site.stack in order]
    return sorted(attended, key=lambda s: (s.stack != "encoder", s.layer, order[s.stack]))


def rollout_steps(weights: Weights, sites: Iterable[Site]) -> tuple[list[RolloutStep], Sides]:
    """The sites as matrices over all tokens, in the order of a forward pass.

    A site without heads is the residual connection alone.
    """
    lengths = {site.stack: cells.shape[1:] for site, cells in weights.items()}
    encoder, decoder = (lengths.get(stack, (0,))[0] for stack in ("encoder", "decoder"))
    sides = Sides(encoder, decoder)
    steps = []
    for site in in_forward_order(sites, lengths):
        matrix = np.eye(encoder + decoder)
        if site in weights:
            matrix[sides.rows(site.stack), sides.columns(site.stack)] += weights[site].mean(axis=0)
            matrix /= matrix.sum(axis=1, keepdims=True)
        steps.append(RolloutStep(site, matrix))
    return steps, sides


def rollout(weights: Weights, sites: Iterable[Site]) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: the shares of the input tokens after each layer."""
    steps, sides = rollout_steps(weights, sites)
    return stack_blocks(_products(steps, sides), sides)


def uniform_weights(weights: Weights) -> dict[Site, NDArray[np.float64]]:
    """[1, query, key] of each site: equal weights on all tokens that a row sees (some head's weight is above 0)."""
    visible = {site: (cells > 0).any(axis=0, keepdims=True) for site, cells in weights.items()}
    return {
        site: cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1)
        for site, cells in visible.items()
    }


def is_masked(weights: Weights) -> bool:
    """Whether some row does not see all tokens."""
    return any(not (cells > 0).any(axis=0).all() for cells in weights.values())


def _products(steps: list[RolloutStep], sides: Sides) -> Iterator[tuple[Site, NDArray[np.float64]]]:
    product = np.eye(sides.encoder + sides.decoder)
    for step in steps:
        product = step.matrix @ product
        yield step.site, product


def stack_blocks(
    products: Iterable[tuple[Site, NDArray[np.float64]]], sides: Sides
) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: its part of the matrices over all tokens, at the end of each layer."""
    layers: dict[str, dict[int, NDArray[np.float64]]] = {}
    for site, matrix in products:
        # A decoder's layer ends with the attention to the encoder, which also changes its shares of its own tokens.
        stacks = ("decoder", "cross") if site.stack == "cross" else (site.stack,)
        for stack in stacks:
            part = matrix[sides.rows(stack), sides.columns(stack)]
            layers.setdefault(stack, {})[site.layer] = part
    return {
        stack: np.stack([parts[layer] for layer in sorted(parts)])[:, None].astype(np.float32)
        for stack, parts in layers.items()
    }
