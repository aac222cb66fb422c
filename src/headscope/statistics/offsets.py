"""At which offsets does each head attend?

self, previous, next: the mass at offset 0, -1 or +1, summed over the query tokens and divided by their number n. The
last token has no next one, so a perfect next-token head has (n - 1) / n. distance: the mean of |key - query|, weighted
by attention. The mass at every offset up to 2,048 tokens is stored for figures (SparseBERT's position importance).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from headscope.heads import Site
from headscope.statistics.base import SHARES, Definition, PerSequence, Quantities, mass_on
from headscope.statistics.by_offset import OffsetSums
from headscope.tables import stack_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Offsets(PerSequence):
    definitions = {
        "previous": mass_on("the previous token", "the token before the query token"),
        "self": mass_on("the token itself", "the query token itself"),
        "next": mass_on("the next token", "the token after the query token"),
        "distance": Definition(
            "tokens",
            "Mean distance of attention",
            "Distance |key - query| in tokens, weighted by attention and averaged over queries.",
            SHARES,
        ),
    }

    quantities = frozenset({"offset_mass"})

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._profile: dict[Site, OffsetSums] = {}

    def measure(self, attention: Quantities) -> Tensor | None:
        if not attention.within_one_text:
            return None
        mass = attention.offset_mass
        # float64, since distances are sums of thousands of numbers and must be exact to six decimals; MPS has none
        exact = torch.float64 if mass.device.type != "mps" else mass.dtype
        means = mass.to(exact) / attention.lengths.to(exact)[:, None, None]
        self._profile.setdefault(attention.site, OffsetSums()).add(means)
        return means @ _offset_weights(attention.query.length, exact, mass.device)

    def merge(self, other: Self) -> Self:
        for site, sums in other._profile.items():
            self._profile.setdefault(site, OffsetSums()).merge(sums)
        return super().merge(other)

    def maps(self) -> dict[str, NDArray[Any]]:
        """offset/STACK: mean mass [layer, head, offset] over sequences, offsets -R … R."""
        maps, means = {}, {site: sums.mean() for site, sums in self._profile.items()}
        for stack in sorted({site.stack for site in means}):
            layers = {site: mean for site, mean in means.items() if site.stack == stack}
            maps[f"offset/{stack}"] = stack_layers(layers).astype(np.float32)
        return maps


@lru_cache(maxsize=64)
def _offset_weights(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[offset, name]: the matrix that turns mean mass by offset into the four statistics."""
    offsets = torch.arange(1 - length, length, device=device)
    columns = [offsets == -1, offsets == 0, offsets == 1, offsets.abs()]
    return torch.stack([column.to(dtype) for column in columns], dim=-1)
