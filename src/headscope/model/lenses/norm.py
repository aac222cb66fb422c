"""The norm lens (Kobayashi et al. 2020): weights times the length of what they move.

A head adds α_ij f(x_j) to token i, f(x_j) = (x_j W_V + b_V) W_O being the value through the head's block of the output
projection. The map is ‖α_ij f(x_j)‖ = α_ij ‖f(x_j)‖, each row as shares of its sum; `row_totals` are the sums. No
vector is built for a cell: ‖f(x_j)‖² = v_j' (W_O W_O') v_j, a small square matrix a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.model.lenses.base import ROWS, SIGN, Lens, over_totals, projections

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel


class NormLens(Lens):
    name = "norm"
    gives = frozenset({ROWS, SIGN})

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        with torch.inference_mode():
            self.squares = {
                site: blocks.transpose(1, 2) @ blocks for site, blocks in projections(model, self.name).items()
            }

    def lengths(self, attention: Attention) -> Tensor:
        """[sequence, head, key]: ‖f(x_j)‖ of every head."""
        values = attention.values
        assert values is not None
        square = self.squares[attention.site].to(values)
        return (values @ square).mul_(values).sum(dim=-1).clamp_min_(0).sqrt_()

    def seen(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        cells = torch.mul(attention.weights, self.lengths(attention)[:, :, None, :], out=attention.buffer("norm"))
        totals = cells.sum(dim=-1)
        seen = attention.through(self.name, over_totals(cells, totals))
        seen.row_totals = totals
        return seen
