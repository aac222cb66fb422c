"""Effective attention (Brunner et al. 2020): the part of A that can change the head's output.

If there are more keys than a value has dimensions, many rows of A give the same A·V: any component in the left null
space of the values (multiplied by the head's block of the output projection) has no effect. The map is A·U·U', where U
is an orthonormal basis of the columns of V. Its cells may be below 0 and its rows do not sum to 1 (`row_totals` are
their sums); `effective-simplex` keeps the sums by adding a column of ones to the basis, as weights stay on the simplex.

The basis comes from the small Gram matrix V'V in float64: by Cholesky if a bound from its inverse shows that every
singular value is above the tolerance, else by its eigenvectors. The tolerance is that of values computed in float32,
max(keys, width)·2⁻²³ of the largest singular value; its square is well above float64 rounding. If W_O's block lacks
full rank, V is multiplied by its root first. A sequence with no more keys than the basis can have columns is
identified: its map is the raw one, and it has no rank.

If rows see different keys (causal or windowed attention), each row has its own null space, that of the values it sees.
Its row of A·U·U' is o·(V'V)⁻¹·V' with o = A·V, the head's output, so that no basis is built. Neighbouring rows share
the factor of V'V for the keys that they have in common.
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

FLOAT32_ROUNDING = 2.0**-23
ROW_BLOCK = 16  # rows that share a factor where they can
# Share of the full-rank bound below which a factor may be shared: updating it loses the square of the bound.
SAFE_BOUND = 1e-2
IDENTIFIED = "The text has no more tokens than a head has dimensions: nothing is removed, these are the weights."


class EffectiveLens(Lens):
    name = "effective"
    gives = frozenset({RANK})
    with_ones = False
    how = (
        "Effective attention (Brunner 2020): weights without the part that cannot change the head's output. Numbers "
        "may be negative; rows {sums} to 1."
    )

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        roots = {site: _root(blocks) for site, blocks in projections(model, self.name).items()}
        self.roots = {site: root for site, root in roots.items() if root is not None}
        self.sequences = self.short = 0  # counted at every site: all, and those that are identified
        self.widths: dict[str, int] = {}  # width of the heads of each stack

    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        values, allowed = attention.values, attention.allowed
        assert values is not None
        if attention.site in self.roots:
            values = values.double() @ self.roots[attention.site].to(values.device)
        width = values.shape[-1]
        self.sequences += len(values)
        self.widths[attention.site.stack] = width
        sees_all = bool(allowed.all())
        most_keys = allowed.shape[-1] if sees_all else int(allowed.sum(dim=-1).amax())
        if most_keys <= width + self.with_ones:
            self.short += len(values)
            result = attention.through(self.name, attention.weights)
        else:
            values = _append_ones(values) if self.with_ones else values
            project = _project_onto_columns if sees_all else _project_by_row
            cells, rank = project(attention.weights, values, allowed)
            result = attention.through(self.name, cells)
            result.rank = rank
        result.row_totals = result.weights.sum(dim=-1)
        return result

    def draw(self, text: OneInput) -> HeadMaps:
        maps = text.observe(self)
        how = self.how.format(sums="sum" if self.with_ones else "need not sum")
        return HeadMaps(maps, f"{how} {IDENTIFIED}" if self.short == self.sequences else how)

    def record(self) -> dict[str, int | dict[str, int]]:
        """The number of sequences that are too short for a null space, and the widths of heads."""
        return {"short": self.short, "sequences": self.sequences, "width": dict(self.widths)}


def _project_onto_columns(
    weights: Tensor, values: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """The map [sequence, head, query, key] and the rank [sequence, head] if every row sees every key."""
    basis, rank = column_basis(values)
    basis = basis.to(weights.dtype)
    return (weights @ basis) @ basis.transpose(-1, -2), rank


def _project_by_row(weights: Tensor, values: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The same if rows see different keys; the rank is the largest among the rows."""
    by_sequence = zip(weights, values.double(), allowed, strict=True)
    cells, ranks = zip(*(row_by_row(*tensors) for tensors in by_sequence), strict=True)
    return torch.stack(cells), torch.stack(ranks)


def column_basis(values: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the columns of values [..., key, width] in float64, zeros beyond the rank [...]."""
    exact = values.double()
    keys = torch.tensor(exact.shape[-2], device=exact.device)
    whitening, rank = _whitening(exact.transpose(-1, -2) @ exact, keys)
    return exact @ whitening, rank


def row_by_row(weights: Tensor, values: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Each row of one sequence without the null space of the values it sees, and the largest rank of rows [head].

    weights, allowed [head, query, key], values [head, key, width] in float64. A row that sees no more keys than are
    identified is unchanged and has no rank.
    """
    heads, _, width = values.shape
    cells = weights.clone()
    largest = torch.zeros(heads, dtype=torch.long, device=values.device)
    gram = values.new_zeros(heads, width, width)
    before = torch.zeros_like(allowed[:, 0])
    for start in range(0, weights.shape[1], ROW_BLOCK):
        rows = slice(start, start + ROW_BLOCK)
        seen = allowed[:, rows]  # [head, row, key]
        common = seen.all(dim=1)
        gram = gram + _gram_change(values, common.double() - before.double())
        before = common
        free = seen.sum(dim=-1) > width
        if bool(free.any()):
            outputs = weights[:, rows].double() @ values
            solved, rank = _solve_rows(outputs, values, gram, common, seen & ~common[:, None])
            projected = ((solved @ values.transpose(-1, -2)) * seen).to(cells.dtype)
            cells[:, rows] = torch.where(free[..., None], projected, cells[:, rows])
            largest = torch.maximum(largest, (rank * free).amax(dim=1))
    return cells, largest


def _gram_change(values: Tensor, signs: Tensor) -> Tensor:
    """The sum over keys of sign·v·v', [head, width, width]; few signs [head, key] are not 0."""
    changed = signs.any(dim=0)
    part = values[:, changed]
    return part.transpose(-1, -2) @ (signs[:, changed, None] * part)


def _solve_rows(
    outputs: Tensor, values: Tensor, gram: Tensor, common: Tensor, extra: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs of heads [head, row, width] times the inverse of V'V of each row, and the rank of V [head, row].

    gram [head, width, width] is V'V of the keys that all these rows see, common [head, key]; extra [head, row, key]
    marks the other keys that a row sees. If the common keys clearly have full rank, one factor serves all rows: the
    extra keys change a small system (Woodbury's identity). Else each row has a factor.
    """
    width, is_extra = values.shape[-1], extra.any(dim=1).any(dim=0)
    own, marks = values[:, is_extra], extra[..., is_extra].double()
    keys = common.sum(dim=-1)
    whitening, rank = _whitening(gram, keys)
    size = gram.diagonal(0, -2, -1).sum(dim=-1).sqrt()
    bound = _tolerance(keys, width) * torch.linalg.matrix_norm(whitening) * size
    if bool(((rank == width) & (bound < SAFE_BOUND)).all()):
        flat, white = own @ whitening, outputs @ whitening
        system = marks[..., None] * (flat @ flat.transpose(-1, -2))[:, None] * marks[..., None, :]
        system.diagonal(0, -2, -1).add_(1.0)
        change = torch.linalg.solve(system, marks * (white @ flat.transpose(-1, -2)))
        solved = (white - (marks * change) @ flat) @ whitening.transpose(-1, -2)
        return solved, rank[:, None].expand(extra.shape[:2])
    outer = (own[..., :, None] * own[..., None, :]).flatten(2)
    grams = gram[:, None] + (marks @ outer).view(*extra.shape[:2], width, width)
    whitening, rank = _whitening(grams, keys[:, None] + extra.sum(dim=-1))
    return (whitening @ (whitening.transpose(-1, -2) @ outputs[..., None])).squeeze(-1), rank


def _tolerance(keys: Tensor, width: int) -> Tensor:
    """The smallest singular value that counts, as a share of the largest."""
    return keys.clamp_min(width).double() * FLOAT32_ROUNDING


def _whitening(gram: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """W [..., width, width] with V·W an orthonormal basis, zeros beyond the rank [...].

    gram is V'V, keys [...] the number of rows of V.
    """
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
        counts = squares > tolerance[doubtful][..., None] ** 2 * squares[..., -1:]
        scales = torch.where(counts, squares, 1.0).rsqrt() * counts
        inverse[doubtful] = vectors * scales[..., None, :]
        rank[doubtful] = counts.sum(dim=-1)
    return inverse, rank


def _append_ones(values: Tensor) -> Tensor:
    """Values with a column of ones, scaled to the values' size so that the tolerance means the same."""
    size = values.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    ones = torch.where(size > 0, size, 1.0).expand(*values.shape[:-1], 1)
    return torch.cat([values, ones], dim=-1)


def _root(blocks: Tensor) -> Tensor | None:
    """[head, width, width]: the factor of values if a block [head, out, width] lacks full rank; else None."""
    exact = blocks.double()
    squares, vectors = torch.linalg.eigh(exact.transpose(1, 2) @ exact)
    tolerance = (max(exact.shape[1:]) * FLOAT32_ROUNDING) ** 2
    counts = squares > tolerance * squares[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    if bool(counts.all()):
        return None
    root: Tensor = vectors * (torch.where(counts, squares, 0.0).sqrt())[:, None, :]
    return root
