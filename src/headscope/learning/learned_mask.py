"""A learned mask on positions: SparseBERT's differentiable attention mask (Shi et al. 2021).

Every pair of positions has a number α, the same in both directions, and M = sigmoid((α + logit u) / τ) with u uniform:
the lower τ, the nearer to 0 or 1, and P(M > 1/2) = sigmoid(α) at any τ. It acts on scores s in one of three forms:

    renormalised     softmax(s + log M): rows are divided by their sum after masking
    additive         softmax(s - 10,000 (1 - M)), as in the paper; 0 and 1 act as above, but M = 0.99 forbids already
    multiplicative   softmax(s) M: rows no longer sum to 1

Once the mask is settled, M is 0 or 1, and 0 is forbidden before the softmax, whatever the form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from headscope.config.learn_mask import LearnMaskConfig, MaskTarget
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.masks.mask_file import MaskPositions, groups_of
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.tokens import Layout
from headscope.training.learnable_edit import LearnableEdit, TargetShare, is_undertrained

START = 3.0  # initial α; if all are equal, softmax(s + log M) is the model without a mask
WARM, COLD = 1.0, 0.1  # τ at the first step, and when the mask settles
FAR = 10_000.0  # constant of the additive form
EDGE = 1e-6  # smallest distance of u from 0 and 1
Shape = tuple[int, int, int, int]  # sequences, heads, queries, keys


class LearnedMask(LearnableEdit):
    """A mask for texts of these lengths.

    config      kind of mask: soft, structured, without_diagonal, per, form, mask_rate, settle
    target      its penalty (in nats, of a fully open mask; proportional to the open share), or its sparsity (reached by
                competition); by default the config's only one
    longest     length of the longest text that it will be applied to, if that is more
    start       α at the first step
    """

    entry: Tensor  # [position, position]: the index of the pair in α
    free: Tensor  # [entry]: its share of attention
    fixed: Tensor  # [group, entry]: 0 or 1 once settled
    is_closed: Tensor  # whether it was settled with all α closed

    def __init__(
        self,
        model: AttentionModel,
        lengths: Iterable[int],
        config: LearnMaskConfig,
        target: MaskTarget | None = None,
        *,
        longest: int | None = None,
        start: float = START,
    ) -> None:
        super().__init__()
        target = target or config.targets[0]
        self.penalty, self.sparsity = target.penalty, target.sparsity
        self.is_soft, self.per, self.form = config.soft, config.per, config.form
        self.structured, self.diagonal = config.structured, not config.without_diagonal
        # Frozen weights are not trained after the mask has settled: it settles with the last step.
        self.rate, self.settle = config.mask_rate, 1.0 if config.freeze_weights else config.settle
        counts = Counter(lengths)
        self.length = max([*counts, longest or 0])
        self.groups = groups_of(model.heads, self.per)
        self.temperature = WARM
        entry, free, always_open, total = _count_entries(
            counts, self.length, structured=self.structured, diagonal=self.diagonal
        )
        self.always_open_share = always_open / total
        device = model.device
        shape = len(self.groups), len(free)
        self.alpha = nn.Parameter(torch.full(shape, start, device=device))
        self.register_buffer("entry", entry.to(device), persistent=False)
        self.register_buffer("free", (free / total).to(device), persistent=False)
        self.register_buffer("fixed", torch.full(shape, -1.0, device=device))
        self.register_buffer("is_closed", torch.tensor(False, device=device))
        self.register_buffer("undertrained", torch.tensor(False, device=device))
        self.start = start
        if self.sparsity is not None:
            self._check_reachable(self.sparsity)
        initial = float(self._expected_share(self.alpha.detach()))
        self.target = None if self.sparsity is None else TargetShare(1.0 - self.sparsity, initial)
        self.logits = self.alpha.detach()
        self.is_hard = False

    def _check_reachable(self, sparsity: float) -> None:
        most = 1.0 - self.always_open_share
        least = most - float(self.free.sum())
        if sparsity > most:
            limit = f"at most {math.floor(1000 * most) / 1000:g} for texts of these lengths"
            why = "the rest is always open"
        elif sparsity < least:
            limit = f"at least {math.ceil(1000 * least) / 1000:g}"
            why = "the diagonal alone is that share of attention; keep the diagonal for less"
        else:
            return
        raise HeadscopeError(f"`sparsity` must be {limit} ({why}), got {sparsity:g}")

    def draw(self, progress: float) -> None:
        """New noise at a lower temperature; hard (0 or 1) once settled, and whenever the model is evaluated."""
        if self.is_soft:
            self.logits = self.alpha
            if progress >= 1:
                self.undertrained.fill_(self._is_undertrained(None))
            return
        if self.is_due(progress):
            chosen = self.binarize()
            self.undertrained.fill_(
                self._is_undertrained(None if self.sparsity is None else chosen)
            )
            self.fixed.copy_(chosen)
            is_open = bool((self.alpha.detach() > 0)[:, self.free > 0].any())
            self.is_closed.fill_(not is_open and self.sparsity is None)
        self.is_hard = self.is_settled or not self.training
        if self.is_hard:
            self.logits = self.binarize()
            return
        # Binary concrete relaxation (Maddison et al. 2017), cooled geometrically until the mask settles
        self.temperature = WARM * (COLD / WARM) ** min(progress / self.settle, 1.0)
        noise = torch.logit(torch.rand(self.alpha.shape), EDGE).to(self.alpha.device)
        self.logits = (self.competing(progress) + noise) / self.temperature

    def _is_undertrained(self, chosen: Tensor | None) -> bool:
        """Whether α of the pairs that occur in the texts hardly moved."""
        occur = self.free > 0
        is_open = None if chosen is None else chosen[:, occur]
        return is_undertrained(self.alpha.detach()[:, occur], self.start, is_open)

    def competing(self, progress: float) -> Tensor:
        """α; with a `sparsity` shifted such that the open share is at its target for this progress."""
        if self.target is None:
            return self.alpha
        return self.alpha + self.target.shift(self.alpha, self._expected_share, progress)

    def _expected_share(self, alpha: Tensor) -> Tensor:
        return self.open_share(torch.sigmoid(alpha))

    def cost(self, progress: float) -> Tensor:
        return self._expected_share(self.alpha) * (0.0 if self.is_settled else self.penalty or 0.0)

    def edit(self) -> Edit:
        return LearnedMaskEdit(self)

    def open_share(self, values: Tensor) -> Tensor:
        """The share of all attention in texts of these lengths that is open by these values [group, entry]."""
        return self.open_shares(values).mean()

    def open_shares(self, values: Tensor) -> Tensor:
        """[group]: the open share of each mask."""
        return self.always_open_share + (values * self.free).sum(dim=1)

    def binarize(self) -> Tensor:
        """[group, entry]: 1 for open entries, else 0. With `sparsity`, the most open ones that fit."""
        if self.is_settled:
            return self.fixed.clone()
        alpha = self.alpha.detach()
        chosen = (alpha > 0).float() if self.sparsity is None else self._largest_that_fit(alpha)
        if not self.structured:
            return torch.maximum(chosen, self._best_of_rows(alpha))
        # Distances that occur only at always open ends were not trained.
        chosen[:, self.free == 0] = 0.0
        return chosen

    def _largest_that_fit(self, alpha: Tensor) -> Tensor:
        """1 for the most open entries until the open share is used up; the best entry of every row comes first."""
        assert self.sparsity is not None
        # In shares of attention, over all groups; 1e-6 allows for rounding in the sums
        available = (1.0 - self.sparsity - self.always_open_share) * len(alpha) + 1e-6
        ranked = alpha
        if not self.structured:
            ranked = alpha.masked_fill(self._best_of_rows(alpha) > 0, math.inf)
        order = torch.argsort(ranked.flatten(), descending=True, stable=True)
        sizes = self.free.expand_as(alpha).flatten()[order].double()
        fits = sizes.cumsum(0) <= available
        # Few and large entries: after one that does not fit there may be some that do
        if self.structured:
            available -= float(sizes[fits].sum())
            for i in (~fits).nonzero()[:, 0].tolist():
                if float(sizes[i]) <= available:
                    fits[i], available = True, available - float(sizes[i])
        chosen = torch.zeros(alpha.numel(), device=alpha.device)
        chosen[order[fits]] = 1.0
        return chosen.view_as(alpha)

    def _best_of_rows(self, alpha: Tensor) -> Tensor:
        """[group, entry]: 1 at the most open key of every position, since every position needs one."""
        values = alpha[:, self.entry].clone()  # [group, query, key]
        if not self.diagonal and self.length > 1:
            values.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        rows = torch.arange(self.length, device=alpha.device)
        best = self.entry[rows, values.argmax(dim=-1)]  # [group, query]
        return torch.zeros_like(alpha).scatter_(1, best, 1.0)

    def map(self) -> Tensor:
        """[group, position, position] of the longest text: sigmoid(α), how open each pair is.

        Pairs that are never open are 0; the first and last position of a structured mask are 1.
        """
        with torch.no_grad():
            values = torch.sigmoid(self.competing(1.0))[:, self.entry]
            if self.structured:
                values[:, [0, -1]] = 1.0
                values[:, :, [0, -1]] = 1.0
            if not self.diagonal:
                values.diagonal(dim1=1, dim2=2).zero_()
        return values.cpu()

    def positions(self) -> MaskPositions:
        """The current binary mask, as it is written to a mask file."""
        chosen = self.binarize().bool()
        allowed = (chosen if self.structured else chosen[:, self.entry]).cpu()
        return MaskPositions(self.groups, self.per, self.structured, self.diagonal, allowed)


# The value of each entry, and the values of always open and never open pairs.
Values = tuple[Tensor, float | bool, float | bool]


class LearnedMaskEdit(Edit):
    """Attention under the current mask; gradients flow into it."""

    def __init__(self, learned: LearnedMask) -> None:
        self.learned = learned
        self._layout: Layout | None = None
        self._cache: dict[tuple[Any, ...], Tensor] = {}
        self._rows: dict[Site, list[int]] = {}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._rows = {}
        for head in heads:
            for group in groups_of([head], self.learned.per):
                rows = self._rows.setdefault(head.site, [])
                if self.learned.per == "head" or not rows:
                    rows.append(self.learned.groups.index(group))

    def begin_forward(self, layout: Layout) -> None:
        self._layout, self._cache = layout, {}

    def changes_mask(self, site: Site) -> bool:
        return site in self._rows and not self.changes_weights(site)

    def changes_weights(self, site: Site) -> bool:
        is_soft = self.learned.form == "multiplicative" and not self.learned.is_hard
        return site in self._rows and is_soft

    def allowed(self, site: Site, shape: Shape, device: torch.device) -> Tensor:
        def values(logits: Tensor) -> Values:
            if self.learned.is_hard:
                return logits > 0.5, True, False
            if self.learned.form == "renormalised":
                return nn.functional.logsigmoid(logits), 0.0, -math.inf
            # sigmoid(-x) is 1 - M without cancellation
            return (-FAR * torch.sigmoid(-logits), 0.0, -math.inf)

        return self._at_positions(site, shape, values)

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        B, H, Q, K = weights.shape
        return weights * self._at_positions(
            site, (B, H, Q, K), lambda logits: (torch.sigmoid(logits), 1.0, 0.0)
        )

    def _at_positions(
        self, site: Site, shape: Shape, values_of: Callable[[Tensor], Values]
    ) -> Tensor:
        """[sequence or 1, head or 1, query, key]: the entries' values at the positions of a batch."""
        rows = tuple(self._rows[site])
        key = (site.stack, rows, shape)
        if key in self._cache:
            return self._cache[key]
        learned, keys = self.learned, shape[3]
        if keys > learned.length and not learned.structured:
            raise HeadscopeError(
                f"texts must have at most {learned.length} positions under this mask, got {keys}"
            )
        position = self._positions(site, shape)
        own, always, never = values_of(learned.logits[list(rows)])  # own: [group, entry]
        if learned.structured:
            distance = (position[:, :, None] - position[:, None, :]).abs()
            # own[:, …] is [group, sequence, query, key]; the mask has sequences first
            full = own[:, distance.clamp(0, learned.length - 1)].transpose(0, 1)
            full = torch.where((distance >= learned.length)[:, None], never, full)
            last = position.max(dim=1, keepdim=True).values
            ends = (position == 0) | (position == last)
            full = torch.where(ends[:, None, :, None] | ends[:, None, None, :], always, full)
        elif len(position) == 1:  # all sequences have the same positions
            full = own[:, learned.entry[:keys, :keys]][None]
        else:
            real = position.clamp_min(0)
            full = own[:, learned.entry[real[:, :, None], real[:, None, :]]].transpose(0, 1)
        if not learned.diagonal:
            full = torch.where(torch.eye(keys, dtype=torch.bool, device=full.device), never, full)
        # With a cache of keys the queries are the last positions
        self._cache[key] = full[:, :, -shape[2] :]
        return self._cache[key]

    def _positions(self, site: Site, shape: Shape) -> Tensor:
        """[sequence or 1, key]: each token's position among the tokens that are not padding.

        For an unstructured mask one row is enough if padding is on the right, since it is hidden anyway.
        """
        device = self.learned.alpha.device
        plain = torch.arange(shape[3], device=device)[None]
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None or sides[0].real.shape != (shape[0], shape[3]):
            return plain
        real = sides[0].real.to(device)
        position = real.long().cumsum(dim=1) - 1
        if self.learned.structured:
            return plain if bool(real.all()) else torch.where(real, position, -1)
        return plain if bool((position == plain)[real].all()) else position


def _count_entries(
    lengths: Counter[int], length: int, *, structured: bool, diagonal: bool
) -> tuple[Tensor, Tensor, float, float]:
    """The index in α of each pair of positions; how often each entry occurs in these texts; always open pairs; all."""
    row, column = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    low, high = torch.minimum(row, column), torch.maximum(row, column)
    # Distances; or the lower triangle, row by row.
    entry = high - low if structured else high * (high + 1) // 2 + low
    free = torch.zeros(length if structured else length * (length + 1) // 2, dtype=torch.float64)
    always_open = 0.0
    for size, count in lengths.items():
        is_free = torch.ones(size, size, dtype=torch.bool)
        if structured:  # the first and last position are open
            is_free[[0, -1]] = False
            is_free[:, [0, -1]] = False
            always_open += count * float((~is_free).sum())
        if not diagonal:
            always_open -= count * min(2.0, size) if structured else 0.0
            is_free.fill_diagonal_(False)
        counts = torch.full((int(is_free.sum()),), float(count), dtype=torch.float64)
        free.index_add_(0, entry[:size, :size][is_free], counts)
    total = float(sum(count * size**2 for size, count in lengths.items()))
    return entry, free.float(), always_open, total
