"""How concentrated is each head's attention on one token?

The value is the largest weight of a row, averaged over the rows of a sequence and then over sequences (Voita et al.
2019). Many large weights are on separators and other special tokens, so there are two forms: over all rows and keys,
and over content rows and content keys only. The second form is not renormalised: a head with 95 % of its attention on a
separator should not count as confident about the text.
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
        if attention.key is not attention.query:  # NaN also if the keys have no content tokens
            content = content + 0.0 * attention.key.averages[:, :1, 1:2]
        return torch.cat([everywhere, content], dim=-1)
