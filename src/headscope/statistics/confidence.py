"""How concentrated is each head's attention on one token?

The largest weight of a row, averaged over the rows of a sequence and then over sequences (Voita et al. 2019). Most
large weights are on separators and the like, so there are two forms: over everything, and over content rows and
content keys alone. The second is not renormalised: a head that spends 95 % on a separator is not confident about the
text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.statistics.base import SUMS, Definition, PerSequence, Quantities


class Confidence(PerSequence):
    definitions = {
        "confidence": Definition(
            "share",
            "Confidence, special tokens included",
            "Largest attention weight of a query, averaged over all queries.",
            SUMS,
        ),
        "confidence-content": Definition(
            "share",
            "Confidence, without special tokens",
            "Largest attention weight of a query on a key that is not a special token, averaged over queries that are "
            "not special tokens. Weights are not renormalised.",
            SUMS,
        ),
    }

    quantities = frozenset({"row_max", "content_row_max"})

    def measure(self, attention: Quantities) -> Tensor:
        everywhere = attention.row_means(attention.row_max, slice(0, 1))
        content = attention.row_means(attention.content_row_max, slice(1, 2))
        if attention.key is not attention.query:  # NaN also where the keys have no content
            content = content + 0.0 * attention.key.averages[:, :1, 1:2]
        return torch.cat([everywhere, content], dim=-1)
