"""Effective attention (Brunner et al. 2020): the part of A that can change what the head gives.

Where there are more keys than a value has numbers, many rows of A give the same A·V: whatever lies in the left null
space of the values (through the head's block of the output projection) is free. A·U·U' is A without it, U being an
orthonormal basis of the columns of V. Its cells may be below 0 and its rows do not sum to 1 (`row_totals` are their
sums); `effective-simplex` keeps the sums by taking a column of ones into the basis, as weights stay on the simplex.

The basis comes from the small Gram matrix V'V in float64: by Cholesky where a bound from its inverse shows that every
singular value is above the tolerance, else by its eigenvectors. The tolerance is that of values computed in float32,
max(keys, width)·2⁻²³ of the largest, whose square is far above what float64 can tell. Where W_O's block has not full
rank, V is multiplied by its root first. A sequence of no more keys than a basis can have columns is identified: its map
is the raw one, and its rank is not told. Causal stacks are left out: there the null space is another one for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.model.attention import Attention
from headscope.model.lenses.base import ROWS, Lens, projections

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

ROUNDING = 2.0**-23


class EffectiveLens(Lens):
    name = "effective"
    gives = frozenset()
    with_ones = False

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        if all(site.stack == "decoder" for site in model.sites):
            raise HeadscopeError(
                f"every stack of {model.name} is causal, where each row has a null space of its own",
                where=f"lens {self.name}",
                expected="an encoder, or an encoder-decoder for its encoder and cross attention",
            )
        self.roots = {
            site: root for site, blocks in projections(model, self.name).items() if (root := _root(blocks)) is not None
        }
        self.counted = {"short": 0, "sequences": 0}  # sequences at a site that were too short, of all

    def seen(self, attention: Attention, gradient: Tensor | None = None) -> Attention | None:
        if attention.site.stack == "decoder":
            return None
        values = attention.values
        assert values is not None
        if attention.site in self.roots:
            values = values.double() @ self.roots[attention.site].to(values.device)
        sequences, _, keys, width = values.shape
        self.counted["sequences"] += sequences
        if keys <= width + self.with_ones:
            self.counted["short"] += sequences
            seen = attention.through(self.name, attention.weights)
        else:
            basis, rank = column_basis(_with_ones(values) if self.with_ones else values)
            basis = basis.to(attention.weights.dtype)
            cells = (attention.weights @ basis) @ basis.transpose(-1, -2)
            seen = attention.through(self.name, cells)
            seen.rank = rank
        seen.row_totals = seen.weights.sum(dim=-1)
        return seen


class SimplexLens(EffectiveLens):
    name = "effective-simplex"
    gives = frozenset({ROWS})
    with_ones = True


def column_basis(values: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the columns of values [..., key, width] in float64, zeros beyond the rank [...]."""
    exact = values.double()
    keys, width = exact.shape[-2:]
    tolerance = max(keys, width) * ROUNDING
    gram = exact.transpose(-1, -2) @ exact
    factor, failed = torch.linalg.cholesky_ex(gram, upper=True)
    identity = torch.eye(width, dtype=exact.dtype, device=exact.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=True)
    # The smallest singular value is at least 1 / |inverse|, the largest at most |factor| (Frobenius norms).
    bound = tolerance * torch.linalg.matrix_norm(inverse) * torch.linalg.matrix_norm(factor)
    doubtful = ~((bound < 1) & (failed == 0))
    rank = torch.full(gram.shape[:-2], width, device=gram.device)
    if bool(doubtful.any()):
        squares, vectors = torch.linalg.eigh(gram[doubtful])
        kept = squares > tolerance**2 * squares[..., -1:]
        scales = torch.where(kept, squares, 1.0).rsqrt() * kept
        inverse[doubtful] = vectors * scales[..., None, :]
        rank[doubtful] = kept.sum(dim=-1)
    return exact @ inverse, rank


def _with_ones(values: Tensor) -> Tensor:
    """A column of ones beside the values, as large as they are, so that the tolerance means the same."""
    size = values.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    ones = torch.where(size > 0, size, 1.0).expand(*values.shape[:-1], 1)
    return torch.cat([values, ones], dim=-1)


def _root(blocks: Tensor) -> Tensor | None:
    """[head, width, width]: what values are multiplied by where a block [head, out, width] lacks rank; else None."""
    exact = blocks.double()
    squares, vectors = torch.linalg.eigh(exact.transpose(1, 2) @ exact)
    tolerance = (max(exact.shape[1:]) * ROUNDING) ** 2
    kept = squares > tolerance * squares[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    if bool(kept.all()):
        return None
    root: Tensor = vectors * (torch.where(kept, squares, 0.0).sqrt())[:, None, :]
    return root
