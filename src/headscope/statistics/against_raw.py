"""How much do the maps of a lens differ from raw attention?

Computed for every lens but `raw`:
- the sum of a row of the map before normalisation;
- Pearson's correlation with the raw map over all cells (Brunner et al. 2020), which depends mostly on large weights;
- the cosine with the raw row, averaged over rows;
- for effective attention, the rank of the values, which is the number of dimensions of a row that can change the head's
  output. Only sequences with more tokens than the head is wide have a rank.
"""

from __future__ import annotations

from functools import partial

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
            "Row sum of the map",
            "Sum of a row of the lens' map before rows are normalised, averaged over queries.",
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
            "Cosine of a row of the lens' map with the same row of raw weights, averaged over queries whose row is not "
            "all 0.",
            ANY,
        ),
        "rank": Definition(
            "number",
            "Rank of the value matrix",
            "Rank of the value vectors of a sequence times the head's block of the output projection, averaged over "
            "sequences with "
            "more tokens than the width of the head.",
            frozenset({RANK}),
        ),
    }

    def measure(self, attention: Attention) -> Tensor:
        totals, rank = attention.row_totals, attention.rank
        assert totals is not None
        products, squares, raw_squares = _products(attention)
        cosines = products / (squares * raw_squares).sqrt()
        if rank is None:
            rank = torch.full_like(totals[..., 0], torch.nan)
        columns = [totals.mean(dim=2), correlations(attention), cosines.nanmean(dim=2), rank]
        return torch.stack([column.double() for column in columns], dim=-1)


def correlations(attention: Attention) -> Tensor:
    """[sequence, head]: Pearson's correlation of the lens' map with the raw weights over all cells."""
    weights, raw = attention.weights, attention.raw.weights
    products, squares, raw_squares = (sums.sum(dim=2) for sums in _products(attention))
    cells = weights.shape[2] * weights.shape[3]
    mean, raw_mean = weights.sum(dim=(2, 3)) / cells, raw.sum(dim=(2, 3)) / cells
    spread = (squares / cells - mean**2) * (raw_squares / cells - raw_mean**2)
    return (products / cells - mean * raw_mean) / spread.clamp_min(0).sqrt()


def _products(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Dot products [sequence, head, query]: rows of the lens with raw rows, with themselves, and raw with raw."""
    weights, raw = attention.weights, attention.raw.weights
    dot = partial(torch.einsum, "shqk,shqk->shq")
    return dot(weights, raw), dot(weights, weights), dot(raw, raw)
