"""Maps of one input: of every head through a lens (`model.lenses`), or token maps over all heads (`token_maps`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.analysis.token_maps import TOKEN_LENSES
from headscope.config import names
from headscope.model.lenses import make_lens
from headscope.model.one_input import OneInput
from headscope.tables import stack_layers

LENSES = (*names.LENSES, *names.TOKEN_MAPS)


@dataclass(frozen=True)
class LensMaps:
    """The maps of one input through one lens.

    name    name of the lens or token map
    maps    for each stack [layer, head, query, key]; NaN for pruned heads
    how     what the numbers mean, in one or two sentences
    shares  whether the numbers are shares: from 0 to 1, with row sums of at most 1
    forms   names for the second axis, if it does not stand for heads
    layers  names for the first axis, if it does not stand for the layers counted from 0
    """

    name: str
    maps: Mapping[str, NDArray[np.float32]]
    how: str = ""
    shares: bool = True
    forms: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None


def compute_lens_maps(text: OneInput, name: str) -> LensMaps:
    """The maps of one input. name: name of a lens or of a token map."""
    if name in TOKEN_LENSES:
        tokens = TOKEN_LENSES[name](text)
        return LensMaps(
            tokens.by, tokens.maps, tokens.how, tokens.shares, tokens.forms, tokens.layers
        )
    by_site, how, shares = make_lens(name, text.model).draw(text)
    maps = {}
    for stack in dict.fromkeys(site.stack for site in text.model.sites):
        of_stack = {site: values for site, values in by_site.items() if site.stack == stack}
        if of_stack:
            maps[stack] = stack_layers(of_stack).astype(np.float32)
    return LensMaps(name, maps, how, shares)
