"""Maps of one input through a lens: of every head (raw, norm, effective, gradient) or of tokens (token_maps)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.analysis.token_maps import TOKEN_LENSES, Input
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.lenses import Lens, lens_named
from headscope.model.lenses.effective import EffectiveLens
from headscope.tables import stack_layers

# Maps [head, query, key] of every site, how to read them, whether they are shares.
HeadMaps = tuple[dict[Site, NDArray[np.float64]], str, bool]


@dataclass(frozen=True)
class LensMaps:
    """The maps of one input through one lens.

    name    raw, norm, rollout …
    maps    for each stack [layer, head, query, key]; a pruned head is NaN throughout
    how     in a sentence or two, what a number means
    shares  whether a number is a share: from 0 to 1, a row's sum at most 1
    forms   names along the second axis if it does not stand for heads
    layers  names along the first axis if it does not stand for the layers counted from 0
    """

    name: str
    maps: Mapping[str, NDArray[np.float32]]
    how: str = ""
    shares: bool = True
    forms: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None


def compute_lens_maps(given: Input, name: str) -> LensMaps:
    """The maps of one input through one lens, of heads or of tokens."""
    if name in TOKEN_LENSES:
        tokens = given.by(name)
        return LensMaps(
            tokens.by, tokens.maps, tokens.how, tokens.shares, tokens.forms, tokens.layers
        )
    by_site, how, shares = HEAD_LENSES[name](given)
    maps = {}
    for stack in dict.fromkeys(site.stack for site in given.model.sites):
        of_stack = {site: values for site, values in by_site.items() if site.stack == stack}
        if of_stack:
            maps[stack] = stack_layers(of_stack).astype(np.float32)
    return LensMaps(name, maps, how, shares)


def raw(given: Input) -> HeadMaps:
    """Attention as it is."""
    how = (
        "Attention: the weights by which a token takes from others; a row sums to 1. "
        "Where a head reads, not whether it matters."
    )
    return given.weights, how, True


def norm(given: Input) -> HeadMaps:
    """Lengths, not shares of a row's: heads and tokens can be compared."""

    def lengths(attention: Attention) -> Tensor:
        assert attention.row_totals is not None
        return attention.weights * attention.row_totals[..., None]

    how = (
        "Norms (Kobayashi 2020): weights times the length of the value they move, through the head's part of the "
        "output projection: the length of what the head adds to one token from another. Rows have no given sum."
    )
    return _observed(given, "norm", lengths), how, False


def effective(given: Input, name: str = "effective") -> HeadMaps:
    """What of attention can change the head's output; below 0 where that is what remains of a small weight."""
    lens = lens_named(name, given.model)
    assert isinstance(lens, EffectiveLens)
    maps = _observed(given, lens, lambda attention: attention.weights)
    sums = "rows sum to 1" if name == "effective-simplex" else "rows need not sum to 1"
    how = (
        "Effective attention (Brunner 2020): weights without the part that cannot change what the head gives; numbers "
        f"may be below 0, {sums}."
    )
    if lens.counted["short"] == lens.counted["sequences"]:
        how += " This text has no more tokens than a head has dimensions: all of its attention counts, so this is raw."
    return maps, how, False


def gradient(given: Input) -> HeadMaps:
    """Weights times gradients, with their sign."""
    weights, gradients, said = given.gradients
    how = (
        f"Attention times the gradient of {said}: what the edge adds to it, to first order; below 0 it takes away. "
        "A head's numbers together are what it adds by its output."
    )
    return {site: weights[site] * gradients[site] for site in weights}, how, False


def _observed(
    given: Input, lens: Lens | str, read: Callable[[Attention], Tensor]
) -> dict[Site, NDArray[np.float64]]:
    """What `read` takes from the attention of every site, seen through the lens."""
    maps: dict[Site, NDArray[np.float64]] = {}

    def keep(attention: Attention) -> None:
        maps[attention.site] = read(attention)[0].double().cpu().numpy().copy()

    with given.model.watched(keep, lens=lens), torch.inference_mode():
        given.model(given.batch)
    return maps


HEAD_LENSES: dict[str, Callable[[Input], HeadMaps]] = {
    "raw": raw,
    "norm": norm,
    "effective": effective,
    "effective-simplex": partial(effective, name="effective-simplex"),
    "gradient": gradient,
}
LENSES = (*HEAD_LENSES, *TOKEN_LENSES)
