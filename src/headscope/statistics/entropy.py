"""How diffuse is each head's attention?

Entropy in nats of every query's distribution over the real keys: averaged within a sequence first and over
sequences second, so that every text counts once, whatever its length. 0 means one key takes all; log(number of keys)
means all take the same. It grows with length: compare heads on the same corpus, or take `entropy-share`, which is
divided by the most that a row can have: the logarithm of the number of keys that it may attend to (i + 1 for row i of
a causal stack, fewer under a window or mask). Rows that see a single key are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.statistics.base import SHARES, Definition, PerSequence, Quantities


class Entropy(PerSequence):
    definitions = {
        "entropy": Definition(
            "nats",
            "Entropy of attention",
            "Entropy of the attention weights of a query, averaged over queries. 0: all attention is on one token.",
            SHARES,
        ),
        "cls-entropy": Definition(
            "nats",
            "Entropy of the classification token's attention",
            "Entropy of the attention weights of the classification token.",
            SHARES,
        ),
        "entropy-share": Definition(
            "share",
            "Entropy relative to its maximum",
            "Entropy of the weights of a query divided by its maximum (the logarithm of the number of visible "
            "keys), averaged over queries with more than one visible key.",
            SHARES,
        ),
    }

    quantities = frozenset({"row_entropy", "visibility"})

    def measure(self, attention: Quantities) -> Tensor:
        entropies = attention.row_entropy
        means = attention.row_means(entropies, slice(0, 3, 2))
        share = (entropies * _shares(attention.visibility.key_counts).to(entropies.dtype)).sum(
            dim=-1
        )
        return torch.cat([means, share[..., None]], dim=-1)


def _shares(keys: Tensor) -> Tensor:
    """Weights [sequence or 1, head or 1, query]: the sum of rows' entropies times these is the mean of their shares.

    keys [sequence or 1, head or 1, query]: the number of keys a row sees. NaN if no row sees two.
    """
    is_counted = keys > 1
    shares = torch.where(is_counted, 1 / keys.double().log(), 0.0)
    return shares / is_counted.sum(dim=-1, keepdim=True)
