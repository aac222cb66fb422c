"""How does effective attention leave the raw one as texts grow? (Brunner et al. 2020, Fig. 1)

Pearson's correlation of the two maps over all their cells, averaged over the heads of a layer, for texts of similar
lengths: 1 up to the width of a head, where all of attention is effective, and less beyond it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Self

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.statistics.against_raw import correlations
from headscope.statistics.base import Statistic
from headscope.statistics.mixing import order, place, told
from headscope.tables import Moments, Row, TableRow

UP_TO = (
    16,
    24,
    32,
    40,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    1024,
    2048,
    4096,
    8192,
)  # tokens; longer ones together


class EffectiveLengths(Statistic):
    definitions = {}
    lens = "effective"

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        super().__init__(names)
        self._sums: dict[tuple[Site, int], Moments] = {}

    def update(self, attention: Attention) -> None:
        length = UP_TO[min(bisect_left(UP_TO, attention.weights.shape[-1]), len(UP_TO) - 1)]
        means = correlations(attention).double().nanmean(dim=1)
        self._sums.setdefault((attention.site, length), Moments(())).add(means.cpu().numpy())

    def merge(self, other: Self) -> Self:
        for key, moments in other._sums.items():
            self._sums.setdefault(key, Moments(())).merge(moments)
        return self

    def table(self) -> list[Row]:
        return []

    def tables(self) -> dict[str, list[TableRow]]:
        rows = [
            {**place(site), "up_to": length, **told(one, is_share=False)}
            for (site, length), one in sorted(self._sums.items(), key=order)
            if one.count > 0
        ]
        return {"effective_lengths": rows}
