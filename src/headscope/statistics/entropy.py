"""How diffuse is each head's attention?

`entropy` is the entropy in nats of a query's distribution over the keys (without padding). It is averaged within a
sequence first and over sequences second, so that every text has the same weight, whatever its length. 0 means that one
key gets all attention, ln(number of keys) that all keys get the same.

Entropy grows with the length of texts, so compare heads on the same corpus, or use `entropy-share`. It is the entropy
divided by its maximum: the logarithm of the number of keys that the query may attend to (i + 1 for row i of a causal
stack, fewer under a window or mask). Queries that may attend to one key only are left out of `entropy-share`.
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
    """Weights [sequence or 1, head or 1, query]: the sum of entropies times these weights is the mean entropy share.

    keys [sequence or 1, head or 1, query]: number of keys that a query may attend to. NaN if no query has two.
    """
    is_counted = keys > 1
    shares = torch.where(is_counted, 1 / keys.double().log(), 0.0)
    return shares / is_counted.sum(dim=-1, keepdim=True)
