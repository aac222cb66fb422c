"""How far is what a lens shows from the weights themselves?

Asked of every lens but `raw`. What the rows of the map summed to before they were normalised; how the map agrees with
the raw one: Pearson's correlation over all its cells (Brunner et al. 2020), which a few large weights decide, and the
cosine of each row, averaged. Through effective attention also the rank of the values: how many dimensions of a row can
change what the head gives; a sequence too short for it has none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.model.lenses import RANK
from headscope.statistics.base import ANY, Definition, PerSequence


class AgainstRaw(PerSequence):
    of_raw = False
    definitions = {
        "row-total": Definition(
            "number",
            "What a row of the map sums to",
            "The sum of a row of the lens' map before rows were normalised, averaged over all query rows.",
            ANY,
        ),
        "raw-correlation": Definition(
            "correlation",
            "Correlation with the weights",
            "Pearson's correlation of the lens' map with the raw weights over all cells of a sequence's map.",
            ANY,
        ),
        "raw-cosine": Definition(
            "correlation",
            "Cosine with the weights",
            "The cosine of a row of the lens' map with the same row of raw weights, averaged over the query rows "
            "in which the map is not all 0.",
            ANY,
        ),
        "rank": Definition(
            "number",
            "Rank of the values",
            "The rank of a sequence's values through the head's block of the output projection, where the sequence "
            "has more tokens than the head is wide.",
            frozenset({RANK}),
        ),
    }

    def measure(self, attention: Attention) -> Tensor:
        totals = attention.row_totals
        assert totals is not None
        products, squares, raw_squares = _products(attention)
        cosines = products / (squares * raw_squares).sqrt()
        rank = (
            attention.rank
            if attention.rank is not None
            else torch.full_like(totals[..., 0], torch.nan)
        )
        columns = [totals.mean(dim=2), correlations(attention), cosines.nanmean(dim=2), rank]
        return torch.stack([column.double() for column in columns], dim=-1)


def correlations(attention: Attention) -> Tensor:
    """[sequence, head]: Pearson's, of the lens' map with the raw weights over all cells."""
    seen, raw = attention.weights, attention.raw.weights
    products, squares, raw_squares = (sums.sum(dim=2) for sums in _products(attention))
    cells = seen.shape[2] * seen.shape[3]
    mean, raw_mean = seen.sum(dim=(2, 3)) / cells, raw.sum(dim=(2, 3)) / cells
    spread = (squares / cells - mean**2) * (raw_squares / cells - raw_mean**2)
    return (products / cells - mean * raw_mean) / spread.clamp_min(0).sqrt()


def _products(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """[sequence, head, query] each: of the two maps' rows with each other, and with themselves."""
    seen, raw = attention.weights, attention.raw.weights
    pairs = ((seen, raw), (seen, seen), (raw, raw))
    one, two, three = (torch.einsum("shqk,shqk->shq", *pair) for pair in pairs)
    return one, two, three
