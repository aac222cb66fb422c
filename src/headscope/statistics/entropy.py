"""How spread out is each head's attention?

Entropy in nats of every query's distribution over the real keys: averaged within a sequence first and over
sequences second, so that a long text counts once, like a short one. 0 means one key takes all; log(number of keys)
means all take the same. It grows with length: compare heads on the same corpus.
"""

from __future__ import annotations

from torch import Tensor

from headscope.model.attention import Attention
from headscope.statistics.base import Definition, PerSequence


class Entropy(PerSequence):
    definitions = {
        "entropy": Definition("nats", "Entropy of attention", "The entropy of a row, averaged over all query rows."),
        "cls-entropy": Definition(
            "nats", "Entropy of the classification token's attention", "The entropy of the classification token's row."
        ),
    }

    def measure(self, attention: Attention) -> Tensor:
        return attention.row_means(attention.row_entropy, slice(0, 3, 2))
