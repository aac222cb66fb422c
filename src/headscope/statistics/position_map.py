"""The mean attention map over absolute positions, for figures.

Cell (i, j) is the mean of A[i, j] over the sequences that have both positions; only the first POSITIONS are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.statistics.base import Statistic
from headscope.tables import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

POSITIONS = 128


class PositionMap(Statistic):
    definitions = {}  # it has no row in the table

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._total: dict[Site, NDArray[np.float64]] = {}
        self._count: dict[Site, NDArray[np.int64]] = {}
        self._recent: dict[Site, tuple[Tensor, int]] = {}  # float32 sums of a few sequences, and how many

    def update(self, attention: Attention) -> None:
        site, weights = attention.site, attention.weights[:, :, :POSITIONS, :POSITIONS]
        sequences, heads, queries, keys = weights.shape
        if site not in self._count:
            self._count[site] = np.zeros((POSITIONS, POSITIONS), dtype=np.int64)
        recent, added = self._recent.get(site, (None, 0))
        if recent is None:
            recent = weights.new_zeros(heads, POSITIONS, POSITIONS)
        part = recent[:, :queries, :keys]
        part += weights[0] if sequences == 1 else weights.sum(dim=0)
        self._recent[site] = (recent, added + sequences)
        self._count[site][:queries, :keys] += sequences
        if added + sequences >= 256:  # a thousand float32 additions would show in the sixth digit
            self._settle(site)

    def _settle(self, site: Site) -> None:
        recent, _ = self._recent.pop(site)
        total = recent.double().cpu().numpy()
        self._total[site] = self._total[site] + total if site in self._total else total

    def merge(self, other: Self) -> Self:
        for site in [*self._recent]:
            self._settle(site)
        for site in [*other._recent]:
            other._settle(site)
        for site, total in other._total.items():
            self._total[site] = self._total[site] + total if site in self._total else total.copy()
            self._count[site] = (
                self._count[site] + other._count[site] if site in self._count else other._count[site].copy()
            )
        return self

    def table(self) -> list[Row]:
        return []

    def maps(self) -> dict[str, NDArray[Any]]:
        """map/STACK: [layer, head, query, key], NaN where no sequence was long enough."""
        for site in [*self._recent]:
            self._settle(site)
        found = {}
        for stack in sorted({site.stack for site in self._total}):
            layers = []
            for site, total in sorted(self._total.items()):
                if site.stack == stack:
                    with np.errstate(invalid="ignore"):
                        layers.append(total / self._count[site])
            kept = ~np.isnan(layers[0][0])
            queries, keys = int(kept.any(axis=1).sum()), int(kept.any(axis=0).sum())
            found[f"map/{stack}"] = np.stack(layers)[:, :, :queries, :keys].astype(np.float32)
        return found

    def __getstate__(self) -> dict[str, Any]:
        for site in [*self._recent]:
            self._settle(site)
        return self.__dict__.copy()
