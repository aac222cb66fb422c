"""How does the difference between effective and raw attention grow with length? (Brunner et al. 2020, Fig. 1)

The value is Pearson's correlation of the two maps over all their cells, averaged over the heads of a layer, for texts
of similar length. It is 1 up to the width of a head, where all attention is effective, and decreases for longer texts.
"""

from __future__ import annotations

from bisect import bisect_left

from headscope.model.attention import Attention
from headscope.statistics.against_raw import correlations
from headscope.statistics.base import ByLayer
from headscope.tables import TableRow

# Upper ends of the bins of lengths, in tokens; longer texts are counted in the last bin.
UP_TO = (16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)


class EffectiveLengths(ByLayer):
    lens = "effective"

    def update(self, attention: Attention) -> None:
        length = UP_TO[min(bisect_left(UP_TO, attention.weights.shape[-1]), len(UP_TO) - 1)]
        self.add((attention.site, length), correlations(attention).double().nanmean(dim=1))

    def tables(self) -> dict[str, list[TableRow]]:
        rows = [
            {**layer, "up_to": length, **moments.summary()}
            for layer, (length,), moments in self.layers()
            if moments.count > 0
        ]
        return {"effective_lengths": rows}
