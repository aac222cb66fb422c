"""The mean attention map over absolute positions, for figures.

Cell (i, j) is the mean of A[i, j] over the sequences that have both positions; only the first POSITIONS are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from headscope.heads import Site
from headscope.model.row_sums import POSITIONS
from headscope.statistics.base import Buffered, Quantities
from headscope.tables import stack_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PositionMap(Buffered):
    """Sums of maps by position. `_pending` has float32 sums of several sequences, `_sums` the float64 sums.

    _sums     [head, query, key] by site
    _lengths  number of sequences by site and (queries, keys)
    _waiting  number of pending sequences by site
    """

    definitions = {}
    quantities = frozenset({"position_sums"})
    _sums: dict[Site, NDArray[np.float64]]

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._lengths: dict[Site, Counter[tuple[int, int]]] = {}
        self._waiting: Counter[Site] = Counter()

    def update(self, attention: Quantities) -> None:
        site, total = attention.site, attention.position_sums
        heads, queries, keys = total.shape
        if site not in self._pending:
            # A tensor that can also be changed outside of inference mode.
            with torch.inference_mode(False):
                zeros = torch.zeros(heads, POSITIONS, POSITIONS, device=total.device)
                self._pending[site] = zeros
        self._pending[site][:, :queries, :keys] += total
        lengths = self._lengths.setdefault(site, Counter())
        sides = (attention.lengths, attention.key_lengths)
        sizes = [side.clamp_max(POSITIONS).long().tolist() for side in sides]
        lengths.update(zip(*sizes, strict=True))
        self._waiting[site] += len(sizes[0])
        if self._waiting[site] >= 256:  # a thousand float32 additions would change the sixth digit
            self._settle(site)

    def _settle(self, site: Site) -> None:
        total = self._pending.pop(site).double().cpu().numpy()
        self._sums[site] = self._sums[site] + total if site in self._sums else total
        del self._waiting[site]

    def merge(self, other: Self) -> Self:
        sums = self._settle_all()
        for site, total in other._settle_all().items():
            sums[site] = sums[site] + total if site in sums else total.copy()
            self._lengths.setdefault(site, Counter()).update(other._lengths[site])
        return self

    def maps(self) -> dict[str, NDArray[Any]]:
        """map/STACK: [layer, head, query, key]; NaN at positions that no sequence has."""
        maps = {}
        for stack in sorted({site.stack for site in self._settle_all()}):
            layers = {site: self._mean(site) for site in sorted(self._sums) if site.stack == stack}
            has_value = ~np.isnan(next(iter(layers.values()))[0])
            queries, keys = (int(has_value.any(axis=axis).sum()) for axis in (1, 0))
            maps[f"map/{stack}"] = stack_layers(layers)[:, :, :queries, :keys].astype(np.float32)
        return maps

    def _mean(self, site: Site) -> NDArray[np.float64]:
        count = np.zeros((POSITIONS, POSITIONS))
        for (queries, keys), sequences in self._lengths[site].items():
            count[:queries, :keys] += sequences
        with np.errstate(invalid="ignore"):
            return self._sums[site] / count
