"""Attention rollout (Abnar and Zuidema 2020): trace attention through all layers back to the input tokens.

Each layer is a matrix [query, key]: half the mean attention of its heads, half the identity for the residual
connection. Rollout is the product of these matrices. In an encoder-decoder, one matrix covers the tokens of encoder and
decoder. Self attention of a decoder layer mixes the tokens of the decoder. Cross attention then takes half from the
encoder's last layer. The shares of the source and target tokens in a target token together sum to 1.
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
    """One site as a matrix [token, token] over the tokens of the encoder, then the decoder; rows sum to 1."""

    site: Site
    matrix: NDArray[np.float64]


@dataclass(frozen=True)
class Sides:
    """The number of tokens of the encoder and of the decoder; 0 if the model does not have it."""

    encoder: int
    decoder: int

    def rows(self, stack: str) -> slice:
        """The rows of a matrix over all tokens that are queries of a stack."""
        return slice(0, self.encoder) if stack == "encoder" else slice(self.encoder, None)

    def columns(self, stack: str) -> slice:
        """The columns of a matrix over all tokens that are keys of a stack."""
        return slice(self.encoder, None) if stack == "decoder" else slice(0, self.encoder)


def in_forward_order(sites: Iterable[Site], lengths: Mapping[str, object]) -> list[Site]:
    """The sites of the stacks in `lengths`, in the order of a forward pass."""
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    attended = [site for site in sites if site.stack in lengths and site.stack in order]
    return sorted(attended, key=lambda s: (s.stack != "encoder", s.layer, order[s.stack]))


def rollout_steps(weights: Weights, sites: Iterable[Site]) -> tuple[list[RolloutStep], Sides]:
    """The sites as matrices over all tokens, in the order of a forward pass.

    The matrix of a site without heads is the identity, for the residual connection.
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
    """{stack: [layer, 1, query, key]}: the share of input token `key` in token `query` after each layer."""
    steps, sides = rollout_steps(weights, sites)
    return stack_blocks(_products(steps, sides), sides)


def uniform_weights(weights: Weights) -> dict[Site, NDArray[np.float64]]:
    """{site: [1, query, key]}: equal weights on all keys that a query sees.

    A key is seen if the weight of some head is above 0.
    """
    visible = {site: (cells > 0).any(axis=0, keepdims=True) for site, cells in weights.items()}
    return {
        site: cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1)
        for site, cells in visible.items()
    }


def is_masked(weights: Weights) -> bool:
    """Whether some query does not see all keys."""
    return any(not (cells > 0).any(axis=0).all() for cells in weights.values())


def _products(steps: list[RolloutStep], sides: Sides) -> Iterator[tuple[Site, NDArray[np.float64]]]:
    """Each site with the product of its matrix and those of all earlier sites."""
    product = np.eye(sides.encoder + sides.decoder)
    for step in steps:
        product = step.matrix @ product
        yield step.site, product


def stack_blocks(
    products: Iterable[tuple[Site, NDArray[np.float64]]], sides: Sides
) -> dict[str, NDArray[np.float32]]:
    """{stack: [layer, 1, query, key]}: the rows and columns of a stack in the matrices over all tokens.

    products  (site, matrix [token, token] after this site)
    """
    layers: dict[str, dict[int, NDArray[np.float64]]] = {}
    for site, matrix in products:
        # A layer of the decoder ends with cross attention, which also changes the shares of the decoder's own tokens.
        stacks = ("decoder", "cross") if site.stack == "cross" else (site.stack,)
        for stack in stacks:
            block = matrix[sides.rows(stack), sides.columns(stack)]
            layers.setdefault(stack, {})[site.layer] = block
    return {
        stack: np.stack([blocks[layer] for layer in sorted(blocks)])[:, None].astype(np.float32)
        for stack, blocks in layers.items()
    }
