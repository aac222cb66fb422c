"""Effective attention (Brunner et al. 2020): the part of the attention weights that can change the head's output.

A are the weights [query, key] of a head, V its values [key, width], W_O its block of the output projection. If there
are more keys than the width of V, many rows of A give the same output A·V·W_O: a component in the left null space of
V·W_O has no effect. Effective attention is A without this component, A·U·U', where U is an orthonormal basis of the
columns of V. Cells may be negative, and rows do not sum to 1 (`row_totals` are their sums). The lens
`effective-simplex` keeps the sums of rows at 1, by adding a column of ones to V.

The basis is computed from the small Gram matrix V'V in float64. If a bound shows that every singular value of V is
above the tolerance, its Cholesky factor is used, otherwise its eigenvectors. The tolerance is that of values computed
in float32: max(keys, width)·2⁻²³ of the largest singular value. Its square is well above float64 rounding. V and V·W_O
have the same left null space if W_O has full rank. If it does not, V is first multiplied by a root of W_O·W_O'
(`_root`).

Attention is called identified if a sequence has no more keys than the basis can have columns. No component has to be
removed then: the map is that of the raw weights, and no rank is computed.

If rows see different keys (causal or windowed attention), each row has a null space of its own, from the values that it
sees. Its row of A·U·U' is o·(V'V)⁻¹·V', where o = A·V is the output of the head for this row, so no basis is needed.
Neighbouring rows share a factorisation of V'V for the keys that they all see.
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
# Rows that share a factorisation of V'V, if the keys that they all see have full rank
ROW_BLOCK = 16
# V'V has clearly full rank if the bound is below this (1 is the limit of full rank): updating the shared factorisation
# for the other keys of a row loses precision in proportion to the square of the bound.
SAFE_BOUND = 1e-2
IDENTIFIED = "The text has no more tokens than a head has dimensions: nothing is removed, these are the weights."


class EffectiveLens(Lens):
    name = "effective"
    gives = frozenset({RANK})
    with_ones = False  # whether a column of ones is added to the values (`effective-simplex`)
    how = (
        "Effective attention (Brunner 2020): weights without the part that cannot change the head's output. Numbers "
        "may be negative; {sums}."
    )

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        roots = {site: _root(blocks) for site, blocks in projections(model, self.name).items()}
        self.roots = {site: root for site, root in roots.items() if root is not None}
        # Counted once per site: all sequences, and those that are identified because they are short
        self.sequences = self.short = 0
        self.widths: dict[str, int] = {}  # {stack: width of its heads}

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
        how = self.how.format(
            sums="the part is chosen such that rows still sum to 1"
            if self.with_ones
            else "rows need not sum to 1"
        )
        return HeadMaps(maps, f"{how} {IDENTIFIED}" if self.short == self.sequences else how)

    def record(self) -> dict[str, int | dict[str, int]]:
        """The number of sequences that are too short for a null space, and the widths of heads."""
        return {"short": self.short, "sequences": self.sequences, "width": dict(self.widths)}


def _project_onto_columns(
    weights: Tensor, values: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """The map [sequence, head, query, key] and the rank of the values [sequence, head], if every row sees every key."""
    basis, rank = column_basis(values)
    basis = basis.to(weights.dtype)
    return (weights @ basis) @ basis.transpose(-1, -2), rank


def _project_by_row(weights: Tensor, values: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The same if rows see different keys; the rank is the largest of all rows."""
    by_sequence = zip(weights, values.double(), allowed, strict=True)
    cells, ranks = zip(*(row_by_row(*tensors) for tensors in by_sequence), strict=True)
    return torch.stack(cells), torch.stack(ranks)


def column_basis(values: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the columns of values [..., key, width], and their rank [...].

    The basis [..., key, width] is float64; if the rank is below the width, some of its columns are 0.
    """
    exact = values.double()
    keys = torch.tensor(exact.shape[-2], device=exact.device)
    whitening, rank = _whitening(exact.transpose(-1, -2) @ exact, keys)
    return exact @ whitening, rank


def row_by_row(weights: Tensor, values: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The map [head, query, key] of one sequence whose rows see different keys, and the largest rank of rows [head].

    weights, allowed  [head, query, key]
    values            [head, key, width] in float64

    A row that sees no more keys than the width is identified: it is unchanged and has no rank.
    """
    heads, _, width = values.shape
    cells = weights.clone()
    largest = torch.zeros(heads, dtype=torch.long, device=values.device)
    gram = values.new_zeros(heads, width, width)  # V'V of the keys that all rows of a block see
    # [head, key]: the keys that all rows of the block before saw
    before = torch.zeros_like(allowed[:, 0])
    for start in range(0, weights.shape[1], ROW_BLOCK):
        rows = slice(start, start + ROW_BLOCK)
        seen = allowed[:, rows]  # [head, row, key]
        common = seen.all(dim=1)  # [head, key]
        gram = gram + _gram_change(values, common.double() - before.double())
        before = common
        free = seen.sum(dim=-1) > width  # [head, row]: the rows that have a null space
        if bool(free.any()):
            outputs = weights[:, rows].double() @ values
            solved, rank = _solve_rows(outputs, values, gram, common, seen & ~common[:, None])
            projected = ((solved @ values.transpose(-1, -2)) * seen).to(cells.dtype)
            cells[:, rows] = torch.where(free[..., None], projected, cells[:, rows])
            largest = torch.maximum(largest, (rank * free).amax(dim=1))
    return cells, largest


def _gram_change(values: Tensor, signs: Tensor) -> Tensor:
    """The sum over keys of sign·v·v' [head, width, width]: the change of V'V if keys are added (1) or removed (-1).

    signs  [head, key]; mostly 0
    """
    changed = signs.any(dim=0)
    changed_values = values[:, changed]
    return changed_values.transpose(-1, -2) @ (signs[:, changed, None] * changed_values)


def _solve_rows(
    outputs: Tensor, values: Tensor, gram: Tensor, common: Tensor, extra: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs [head, row, width] times the inverse of V'V of each row, and the rank of V [head, row].

    gram    [head, width, width]: V'V of the common keys
    common  [head, key]: the keys that all these rows see
    extra   [head, row, key]: the other keys that a row sees

    If V of the common keys clearly has full rank, it is factorised once for all rows. The extra keys of a row are then
    a low-rank update, which only needs a small system to be solved (Woodbury's identity). Otherwise each row has a
    factorisation of its own.
    """
    width, is_extra = values.shape[-1], extra.any(dim=1).any(dim=0)
    extra_values, marks = values[:, is_extra], extra[..., is_extra].double()
    keys = common.sum(dim=-1)
    whitening, rank = _whitening(gram, keys)
    size = gram.diagonal(0, -2, -1).sum(dim=-1).sqrt()  # Frobenius norm of V
    bound = _tolerance(keys, width) * torch.linalg.matrix_norm(whitening) * size
    if bool(((rank == width) & (bound < SAFE_BOUND)).all()):
        # With (V'V)⁻¹ = W·W', E the extra values of a row, F = E·W and y = o·W:
        # o·(V'V + E'E)⁻¹ = (y - y·F'·(I + F·F')⁻¹·F)·W'. Marks set the extra keys to 0 that a row does not see.
        flat, white = extra_values @ whitening, outputs @ whitening  # F and y
        system = marks[..., None] * (flat @ flat.transpose(-1, -2))[:, None] * marks[..., None, :]
        system.diagonal(0, -2, -1).add_(1.0)  # [head, row, extra key, extra key]
        change = torch.linalg.solve(system, marks * (white @ flat.transpose(-1, -2)))
        solved = (white - (marks * change) @ flat) @ whitening.transpose(-1, -2)
        return solved, rank[:, None].expand(extra.shape[:2])
    outer = (extra_values[..., :, None] * extra_values[..., None, :]).flatten(2)  # v·v' of each key
    grams = gram[:, None] + (marks @ outer).view(*extra.shape[:2], width, width)
    whitening, rank = _whitening(grams, keys[:, None] + extra.sum(dim=-1))
    return (whitening @ (whitening.transpose(-1, -2) @ outputs[..., None])).squeeze(-1), rank


def _tolerance(keys: Tensor, width: int) -> Tensor:
    """The singular value below which values count as linearly dependent, as a share of the largest singular value."""
    return keys.clamp_min(width).double() * FLOAT32_ROUNDING


def _whitening(gram: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """W [..., width, width] such that V·W is an orthonormal basis of the columns of V, and the rank of V [...].

    If the rank is below the width, some columns of W are 0.

    gram  [..., width, width]: V'V
    keys  [...]: the number of rows of V
    """
    width = gram.shape[-1]
    tolerance = _tolerance(keys, width).expand(gram.shape[:-2])
    factor, failed = torch.linalg.cholesky_ex(gram, upper=True)
    identity = torch.eye(width, dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=True)
    # The smallest singular value of V is at least 1 / |inverse|, the largest at most |factor| (Frobenius norms). So all
    # singular values are above the tolerance if the bound is below 1.
    bound = tolerance * torch.linalg.matrix_norm(inverse) * torch.linalg.matrix_norm(factor)
    doubtful = ~((bound < 1) & (failed == 0))
    rank = torch.full(gram.shape[:-2], width, device=gram.device)
    if bool(doubtful.any()):
        # `squares` are the squared singular values of V, ascending.
        squares, vectors = torch.linalg.eigh(gram[doubtful])
        is_above = squares > tolerance[doubtful][..., None] ** 2 * squares[..., -1:]
        scales = torch.where(is_above, squares, 1.0).rsqrt() * is_above
        inverse[doubtful] = vectors * scales[..., None, :]
        rank[doubtful] = is_above.sum(dim=-1)
    return inverse, rank


def _append_ones(values: Tensor) -> Tensor:
    """Values with an additional column of one constant, their root mean square.

    The basis is the same as with ones. The size of the constant keeps the meaning of the tolerance.
    """
    size = values.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    ones = torch.where(size > 0, size, 1.0).expand(*values.shape[:-1], 1)
    return torch.cat([values, ones], dim=-1)


def _root(blocks: Tensor) -> Tensor | None:
    """[head, width, width]: R with R·R' = block'·block, if a block [head, out, width] lacks full rank; else None.

    V·R has the same left null space as the values multiplied by the block.
    """
    exact = blocks.double()
    squares, vectors = torch.linalg.eigh(exact.transpose(1, 2) @ exact)
    tolerance = (max(exact.shape[1:]) * FLOAT32_ROUNDING) ** 2
    is_above = squares > tolerance * squares[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    if bool(is_above.all()):
        return None
    root: Tensor = vectors * (torch.where(is_above, squares, 0.0).sqrt())[:, None, :]
    return root
