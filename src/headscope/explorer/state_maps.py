"""Maps derived from states: those of one layer, the differences between two states, and thumbnails."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headscope.explorer.responses import Refusal
from headscope.explorer.session import State
from headscope.heads import Site

THUMBNAIL_SIDE = 48  # most cells per side of a thumbnail


def no_stack(stack: str, state: State) -> Refusal:
    what = f'there is no stack "{stack[:40]}" in this state'
    return Refusal(404, what, expected=_extent(state))


def layer_maps(state: State, stack: str, layer: int) -> tuple[Site, NDArray[np.float32]]:
    """The site of a layer and its maps [head, query, key]."""
    site = Site(stack, layer)
    for of_state, maps in state.weights.items():
        if of_state == site:
            return of_state, maps
    what = f'there are no maps of "{stack[:40]}" layer {layer} in this state'
    raise Refusal(404, what, expected=_extent(state))


def _extent(state: State) -> str:
    layers: dict[str, list[str]] = {}
    for site in state.weights:
        layers.setdefault(site.stack, []).append(str(site.layer))
    return ", ".join(f"{stack} layers {', '.join(numbers)}" for stack, numbers in layers.items())


def check_comparable(first: State, second: State, stack: str) -> None:
    """Raise an error if the maps of two states in this stack are not of the same tokens."""
    for state in (first, second):
        if stack not in state.sides:
            raise no_stack(stack, state)
    tokens = [[side.tokens for side in state.sides[stack]] for state in (first, second)]
    if tokens[0] != tokens[1]:
        what = "the two states are of different tokens"
        raise Refusal(422, what, expected="the same text, tokenized alike")


def difference(
    first: State, second: State, stack: str, layer: int
) -> tuple[list[int], NDArray[np.float32]]:
    """The numbers of a layer's heads that both states have, and [head, query, key]: second maps minus first."""
    (site, maps), (other, other_maps) = (layer_maps(s, stack, layer) for s in (first, second))
    numbers = {head.head for head in site.heads(len(maps))}
    both = [head.head for head in other.heads(len(other_maps)) if head.head in numbers]
    if not both:
        what = f"the two have no head of {stack} layer {layer} in common"
        raise Refusal(422, what, expected="heads that both have")
    return both, other_maps[[other.index_of(n) for n in both]] - maps[
        [site.index_of(n) for n in both]
    ]


def largest_difference(first: State, second: State, stack: str) -> float:
    """The largest absolute difference in a stack, over the layers that both states have; 1 if there is none."""
    largest = 0.0
    for layer in (site.layer for site in first.weights if site.stack == stack):
        try:
            _, maps = difference(first, second, stack, layer)
        except Refusal:
            continue
        largest = max(largest, float(np.abs(maps).max(initial=0)))
    return float(f"{largest:.5g}") or 1.0


def thumbnails(weights: NDArray[np.float32], side: int = THUMBNAIL_SIDE) -> NDArray[np.float32]:
    """Maps [map, query, key] reduced to at most `side` cells per side; a cell is its block's number furthest from 0.

    Means would not do: they make a thin diagonal fade, which is a main pattern to look for in a thumbnail.
    """
    for axis in (1, 2):
        length = weights.shape[axis]
        if length > side:
            starts = np.arange(side) * length // side
            most = np.maximum.reduceat(weights, starts, axis=axis)
            least = np.minimum.reduceat(weights, starts, axis=axis)
            weights = np.where(most >= -least, most, least)
    return weights
