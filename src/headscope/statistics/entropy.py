"""How spread out is each head's attention?

Entropy in nats of every query's distribution over the real keys: averaged within a sequence first and over
sequences second, so that a long text counts once, like a short one. 0 means one key takes all; log(number of keys)
means all take the same. It grows with length: compare heads on the same corpus, or take `entropy-share`, which is
divided by the most that a row can have (in a causal stack row i sees i + 1 keys; the first is left out).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.statistics.base import SHARES, Definition, PerSequence


class Entropy(PerSequence):
    definitions = {
        "entropy": Definition(
            "nats", "Entropy of attention", "The entropy of a row, averaged over all query rows.", SHARES
        ),
        "cls-entropy": Definition(
            "nats",
            "Entropy of the classification token's attention",
            "The entropy of the classification token's row.",
            SHARES,
        ),
        "entropy-share": Definition(
            "share",
            "Entropy as a share of the most possible",
            "The entropy of a row divided by the logarithm of the number of keys it can see, averaged over the rows "
            "that see more than one.",
            SHARES,
        ),
    }

    def measure(self, attention: Attention) -> Tensor:
        entropies = attention.row_entropy
        means = attention.row_means(entropies, slice(0, 3, 2))
        keys = attention.weights.shape[-1]
        share = _shares(attention.length, keys, attention.site.stack == "decoder", entropies.device)
        return torch.cat([means, (entropies @ share.to(entropies.dtype))[..., None]], dim=-1)


@lru_cache(maxsize=64)
def _shares(queries: int, keys: int, is_causal: bool, device: torch.device) -> Tensor:
    """[query]: rows' entropies times this are the mean of their shares; NaN if no row sees two keys."""
    seen = torch.arange(1, queries + 1, device=device) if is_causal else torch.full((queries,), keys, device=device)
    counted = seen > 1
    return torch.where(counted, 1 / seen.double().log(), 0.0) / counted.sum()
