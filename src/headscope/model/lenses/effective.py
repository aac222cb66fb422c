"""Effective attention (Brunner et al. 2020): the part of A that can change what the head gives.

Where there are more keys than a value has numbers, many rows of A give the same A·V: whatever lies in the left null
space of the values (through the head's block of the output projection) is free. A·U·U' is A without it, U being an
orthonormal basis of the columns of V. Its cells may be below 0 and its rows do not sum to 1 (`row_totals` are their
sums); `effective-simplex` keeps the sums by taking a column of ones into the basis, as weights stay on the simplex.

The basis comes from the small Gram matrix V'V in float64: by Cholesky where a bound from its inverse shows that every
singular value is above the tolerance, else by its eigenvectors. The tolerance is that of values computed in float32,
max(keys, width)·2⁻²³ of the largest, whose square is far above what float64 can tell. Where W_O's block has not full
rank, V is multiplied by its root first. A sequence of no more keys than a basis can have columns is identified: its map
is the raw one, and its rank is not told.

Where rows see different keys (a decoder's tokens the earlier ones, local attention a window) each has a null space of
its own, that of the values it sees. Its row of A·U·U' is o·(V'V)⁻¹·V' with o = A·V, what the head gives, so that no
basis is built, and neighbouring rows share the factor of V'V for the keys that they have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headscope.model.attention import Attention
from headscope.model.lenses._base import RANK, HeadMaps, Lens, projections

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel
    from headscope.model.one_input import OneInput

ROUNDING = 2.0**-23
ROWS_AT_ONCE = 16  # that share a factor where they can
DOUBT = 1e-2  # of the bound below which values have full rank for certain: a shared factor loses the square of it

IDENTIFIED = "This text has no more tokens than a head has dimensions: all of its attention counts, so this is raw."


class EffectiveLens(Lens):
    name = "effective"
    gives = frozenset({RANK})
    with_ones = False
    how = (
        "Effective attention (Brunner 2020): weights without the part that cannot change what the head gives; numbers "
        "may be below 0, rows {sums} to 1."
    )

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        self.roots = {
            site: root
            for site, blocks in projections(model, self.name).items()
            if (root := _root(blocks)) is not None
        }
        self.sequences = self.short = 0  # counted at every site: all, and those that are identified
        self.widths: dict[str, int] = {}  # width of the heads of each stack

    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        values = attention.values
        assert values is not None
        if attention.site in self.roots:
            values = values.double() @ self.roots[attention.site].to(values.device)
        self.sequences += len(values)
        self.widths[attention.site.stack] = values.shape[-1]
        if _most_keys(attention) <= values.shape[-1] + self.with_ones:
            self.short += len(values)
            seen = attention.through(self.name, attention.weights)
        else:
            cells, rank = _without_null_space(
                attention, _with_ones(values) if self.with_ones else values
            )
            seen = attention.through(self.name, cells)
            seen.rank = rank
        seen.row_totals = seen.weights.sum(dim=-1)
        return seen

    def draw(self, text: OneInput) -> HeadMaps:
        maps = text.observe(self)
        how = self.how.format(sums="sum" if self.with_ones else "need not sum")
        if self.short == self.sequences:
            how += " " + IDENTIFIED
        return HeadMaps(maps, how)

    def record(self) -> dict[str, int | dict[str, int]]:
        """The number of sequences that are too short for a null space, and the widths of heads."""
        return {"short": self.short, "sequences": self.sequences, "width": dict(self.widths)}


def _most_keys(attention: Attention) -> int:
    """That a row sees."""
    allowed = attention.allowed
    return allowed.shape[-1] if bool(allowed.all()) else int(allowed.sum(dim=-1).amax())


def _without_null_space(attention: Attention, values: Tensor) -> tuple[Tensor, Tensor]:
    """The map, and the rank [sequence, head] of the values."""
    weights, allowed = attention.weights, attention.allowed
    if bool(allowed.all()):
        basis, rank = column_basis(values)
        basis = basis.to(weights.dtype)
        return (weights @ basis) @ basis.transpose(-1, -2), rank
    found = [row_by_row(*of) for of in zip(weights, values.double(), allowed, strict=True)]
    return torch.stack([cells for cells, _ in found]), torch.stack([ranks for _, ranks in found])


def column_basis(values: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the columns of values [..., key, width] in float64, zeros beyond the rank [...]."""
    exact = values.double()
    whitening, rank = _whitening(
        exact.transpose(-1, -2) @ exact, torch.tensor(exact.shape[-2], device=exact.device)
    )
    return exact @ whitening, rank


def row_by_row(weights: Tensor, values: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Of one sequence: each row less the null space of the values it sees, and the largest rank among rows [head].

    weights, allowed [head, query, key], values [head, key, width] in float64. A row that sees no more keys than are
    identified stays as it is, and has no rank.
    """
    cells, largest = (
        weights.clone(),
        torch.zeros(len(values), dtype=torch.long, device=values.device),
    )
    gram, before = (
        values.new_zeros(len(values), *2 * values.shape[-1:]),
        torch.zeros_like(allowed[:, 0]),
    )
    for start in range(0, weights.shape[1], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        seen = allowed[:, rows]
        common = seen.all(dim=1)
        gram = gram + _gram(values, common.double() - before.double())
        before = common
        free = seen.sum(dim=-1) > values.shape[-1]
        if bool(free.any()):
            given = weights[:, rows].double() @ values
            turned, rank = _turned(given, values, gram, common, seen & ~common[:, None])
            found = ((turned @ values.transpose(-1, -2)) * seen).to(cells.dtype)
            cells[:, rows] = torch.where(free[..., None], found, cells[:, rows])
            largest = torch.maximum(largest, (rank * free).amax(dim=1))
    return cells, largest


def _gram(values: Tensor, signs: Tensor) -> Tensor:
    """The sum over keys of sign·v·v', [head, width, width]; few signs [head, key] are not 0."""
    moved = signs.any(dim=0)
    part = values[:, moved]
    return part.transpose(-1, -2) @ (signs[:, moved, None] * part)


def _turned(
    given: Tensor, values: Tensor, gram: Tensor, common: Tensor, extra: Tensor
) -> tuple[Tensor, Tensor]:
    """What the heads gave [head, row, width] times the inverse of V'V of each row, and the rank of V [head, row].

    gram [head, width, width] is V'V of the keys that all these rows see, common [head, key]; extra [head, row, key]
    says which a row sees beside them. Where the common keys have full rank, far from doubt, one factor serves all rows:
    what the extra ones change is a small system of their own (Woodbury's identity). Else each row has a factor.
    """
    width, some = values.shape[-1], extra.any(dim=1).any(dim=0)
    own, of_own = values[:, some], extra[..., some].double()
    keys = common.sum(dim=-1)
    whitening, rank = _whitening(gram, keys)
    bound = (
        _tolerance(keys, width)
        * torch.linalg.matrix_norm(whitening)
        * gram.diagonal(0, -2, -1).sum(dim=-1).sqrt()
    )
    if bool(((rank == width) & (bound < DOUBT)).all()):
        flat, white = own @ whitening, given @ whitening
        system = of_own[..., None] * (flat @ flat.transpose(-1, -2))[:, None] * of_own[..., None, :]
        system.diagonal(0, -2, -1).add_(1.0)
        change = torch.linalg.solve(system, of_own * (white @ flat.transpose(-1, -2)))
        return (white - (of_own * change) @ flat) @ whitening.transpose(-1, -2), rank[
            :, None
        ].expand(extra.shape[:2])
    outer = (own[..., :, None] * own[..., None, :]).flatten(2)
    grams = gram[:, None] + (of_own @ outer).view(*extra.shape[:2], width, width)
    whitening, rank = _whitening(grams, keys[:, None] + extra.sum(dim=-1))
    return (whitening @ (whitening.transpose(-1, -2) @ given[..., None])).squeeze(-1), rank


def _tolerance(keys: Tensor, width: int) -> Tensor:
    return keys.clamp_min(width).double() * ROUNDING


def _whitening(gram: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """W [..., width, width] with V·W an orthonormal basis, zeros beyond the rank [...]; gram is V'V of so many keys."""
    width = gram.shape[-1]
    tolerance = _tolerance(keys, width).expand(gram.shape[:-2])
    factor, failed = torch.linalg.cholesky_ex(gram, upper=True)
    identity = torch.eye(width, dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=True)
    # The smallest singular value is at least 1 / |inverse|, the largest at most |factor| (Frobenius norms).
    bound = tolerance * torch.linalg.matrix_norm(inverse) * torch.linalg.matrix_norm(factor)
    doubtful = ~((bound < 1) & (failed == 0))
    rank = torch.full(gram.shape[:-2], width, device=gram.device)
    if bool(doubtful.any()):
        squares, vectors = torch.linalg.eigh(gram[doubtful])
        kept = squares > tolerance[doubtful][..., None] ** 2 * squares[..., -1:]
        scales = torch.where(kept, squares, 1.0).rsqrt() * kept
        inverse[doubtful] = vectors * scales[..., None, :]
        rank[doubtful] = kept.sum(dim=-1)
    return inverse, rank


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
