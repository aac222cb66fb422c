"""Attention rollout (Abnar and Zuidema 2020): attention followed down through all layers to the input tokens.

A layer is half what its heads' mean attention mixes and half what the residual connection passes on; the layers'
matrices are multiplied. In an encoder-decoder the tokens of both sides stand in one row: a decoder layer mixes its own
tokens, then half of it comes from the encoder's last layer, so that a target token's shares of target and source
together sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Site
from headscope.model.one_input import Weights

HOW = (
    "Attention rollout: each layer is half its heads' mean attention, half the residual connection; the layers are "
    "multiplied. A number is the share of an input token in this token after the layer{sums}."
)
BASELINE = (
    " Beside it the same for attention that goes evenly to all tokens that can be seen: what the mask and the residual "
    "connection alone give, which in a decoder piles up on the first tokens. Only what differs from it is the heads'."
)
FORMS = ("attention", "even attention")
WITHIN = "; a row sums to 1"
ACROSS = "; in the encoder a row sums to 1, of a target token the shares of source and target together do"


@dataclass(frozen=True)
class RolloutStep:
    """One site as a matrix over all tokens, the encoder's before the decoder's; rows sum to 1."""

    site: Site
    matrix: NDArray[np.float64]


@dataclass(frozen=True)
class Sides:
    """How many tokens the encoder and the decoder have; 0 where there is none."""

    encoder: int
    decoder: int

    def rows(self, stack: str) -> slice:
        return slice(0, self.encoder) if stack == "encoder" else slice(self.encoder, None)

    def columns(self, stack: str) -> slice:
        return (
            slice(0, self.encoder) if stack in ("encoder", "cross") else slice(self.encoder, None)
        )


def rollout_steps(weights: Weights, sites: Iterable[Site]) -> tuple[list[RolloutStep], Sides]:
    """The sites in the order in which a forward pass comes by, those of stacks that did not attend left out.

    A site without heads is the residual connection alone.
    """
    lengths = {site.stack: mixed.shape[1:] for site, mixed in weights.items()}
    sides = Sides(
        lengths["encoder"][0] if "encoder" in lengths else 0,
        lengths["decoder"][0] if "decoder" in lengths else 0,
    )
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    there = [site for site in sites if site.stack in lengths and site.stack in order]
    there.sort(key=lambda site: (site.stack != "encoder", site.layer, order[site.stack]))
    return [RolloutStep(site, _matrix(site, weights, sides)) for site in there], sides


def _matrix(site: Site, weights: Weights, sides: Sides) -> NDArray[np.float64]:
    whole = np.eye(sides.encoder + sides.decoder)
    if site in weights:
        rows, columns = sides.rows(site.stack), sides.columns(site.stack)
        whole[rows, columns] += weights[site].mean(axis=0)
        whole /= whole.sum(axis=1, keepdims=True)
    return whole


def rollout(weights: Weights, sites: Iterable[Site]) -> dict[str, NDArray[np.float32]]:
    """For each stack [layer, 1, query, key]: the shares of the input tokens after each layer."""
    found, sides = rollout_steps(weights, sites)
    return stack_blocks(_products(found, sides), sides)


def uniform_weights(weights: Weights) -> dict[Site, NDArray[np.float64]]:
    """[1, query, key] of each site: the same weight on every token that a row sees (some head's weight is above 0)."""
    seen = {site: (mixed > 0).any(axis=0, keepdims=True) for site, mixed in weights.items()}
    return {
        site: cells / np.maximum(cells.sum(axis=-1, keepdims=True), 1)
        for site, cells in seen.items()
    }


def is_masked(weights: Weights) -> bool:
    """Whether some row does not see all tokens."""
    return any(not (mixed > 0).any(axis=0).all() for mixed in weights.values())


def _products(found: list[RolloutStep], sides: Sides) -> Iterator[tuple[Site, NDArray[np.float64]]]:
    product = np.eye(sides.encoder + sides.decoder)
    for step in found:
        product = step.matrix @ product
        yield step.site, product


def stack_blocks(
    reached: Iterable[tuple[Site, NDArray[np.float64]]], sides: Sides
) -> dict[str, NDArray[np.float32]]:
    """The parts of matrices over all tokens that are each stack's, at the end of each layer."""
    layers: dict[str, dict[int, NDArray[np.float64]]] = {}
    for site, matrix in reached:
        stacks = ("decoder", "cross") if site.stack == "cross" else (site.stack,)
        for stack in stacks:  # the attention to the encoder ends a decoder's layer
            part = matrix[sides.rows(stack), sides.columns(stack)]
            layers.setdefault(stack, {})[site.layer] = part
    return {
        stack: np.stack([found[layer] for layer in sorted(found)])[:, None].astype(np.float32)
        for stack, found in layers.items()
    }
