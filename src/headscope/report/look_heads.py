"""One input's maps of all heads through the lenses of a head: what the page shows, and how it says it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.analysis.token_maps import Input
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.lenses import lens_named
from headscope.model.lenses.effective import EffectiveLens

Found = tuple[
    dict[Site, NDArray[np.float64]], str, bool
]  # maps [head, query, key], how to read them, whether shares


def raw(given: Input) -> Found:
    """Attention as it is."""
    how = (
        "Attention: the weights by which a token takes from others; a row sums to 1. "
        "Where a head reads, not whether it matters."
    )
    return given.weights, how, True


def norm(given: Input) -> Found:
    """Lengths, not shares of a row's: heads and tokens can be compared."""
    found: dict[Site, NDArray[np.float64]] = {}

    def keep(attention: Attention) -> None:
        assert attention.row_totals is not None
        found[attention.site] = _array(attention.weights * attention.row_totals[..., None])

    with given.model.watched(keep, lens="norm"), torch.inference_mode():
        given.model(given.batch)
    how = (
        "Norms (Kobayashi 2020): weights times the length of the value they move, through the head's part of the "
        "output projection: the length of what the head adds to one token from another. Rows have no given sum."
    )
    return found, how, False


def effective(given: Input, name: str = "effective") -> Found:
    """What of attention can change the head's output; below 0 where that is what remains of a small weight."""
    found: dict[Site, NDArray[np.float64]] = {}

    def keep(attention: Attention) -> None:
        found[attention.site] = _array(attention.weights)

    lens = lens_named(name, given.model)
    assert isinstance(lens, EffectiveLens)
    with given.model.watched(keep, lens=lens), torch.inference_mode():
        given.model(given.batch)
    sums = "rows sum to 1" if name == "effective-simplex" else "rows need not sum to 1"
    how = (
        "Effective attention (Brunner 2020): weights without the part that cannot change what the head gives; numbers "
        f"may be below 0, {sums}."
    )
    if lens.counted["short"] == lens.counted["sequences"]:
        how += " This text has no more tokens than a head has dimensions: all of its attention counts, so this is raw."
    return found, how, False


def simplex(given: Input) -> Found:
    """Effective attention whose rows keep their sum."""
    return effective(given, "effective-simplex")


def gradient(given: Input) -> Found:
    """Weights times gradients, with their sign."""
    weights, gradients, said = given.gradients
    how = (
        f"Attention times the gradient of {said}: what the edge adds to it, to first order; below 0 it takes away. "
        "A head's numbers together are what it adds by its output."
    )
    return {site: weights[site] * gradients[site] for site in weights}, how, False


def _array(cells: torch.Tensor) -> NDArray[np.float64]:
    return cells[0].double().cpu().numpy().copy()


HEAD_LENSES: dict[str, Callable[[Input], Found]] = {
    "raw": raw,
    "norm": norm,
    "effective": effective,
    "effective-simplex": simplex,
    "gradient": gradient,
}
