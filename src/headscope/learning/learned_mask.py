"""A learned mask on positions: SparseBERT's differentiable attention mask (Shi et al. 2021).

Every pair of positions has a logit α, the same in both directions. In training, the mask value of a pair is random:
M = sigmoid((α + logit u) / τ), where u is uniform on (0, 1). A lower temperature τ brings M nearer to 0 or 1;
P(M > 1/2) = sigmoid(α) at every τ. The mask acts on attention scores s in one of three forms:

    renormalised     softmax(s + log M): rows are divided by their sums after masking
    additive         softmax(s - 10,000 (1 - M)), as in the paper. M = 0 and M = 1 act as above, but M = 0.99 already
                     forbids a pair
    multiplicative   softmax(s) M: rows do not sum to 1

The mask settles during training: from then on M is fixed at 0 or 1. A pair with M = 0 is then excluded from the
softmax, whatever the form.

An entry is one number of α. It belongs to a pair of positions, or, in a structured mask, to all pairs at one distance.
A group is a set of heads with the same mask: the model, a layer or a head.
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

START = 3.0  # initial α: nearly open. Equal values of M change nothing in the form `renormalised`
WARM, COLD = 1.0, 0.1  # τ at the first step, and when the mask settles
FAR = 10_000.0  # constant of the additive form
EDGE = 1e-6  # smallest distance of u from 0 and 1
Shape = tuple[int, int, int, int]  # sequences, heads, queries, keys


class LearnedMask(LearnableEdit):
    """A mask for texts of these lengths.

    lengths  number of tokens of every training text
    config   options of the mask: soft, structured, without_diagonal, per, form, mask_rate, settle
    target   a penalty or a sparsity; by default the first target of the config. The penalty is in nats for a fully open
             mask, and proportional to the open share. A sparsity is reached by competition: a common number is added
             to all α such that the open share is right
    longest  length of the longest text that the mask will be applied to, if it is longer than the training texts
    start    α at the first step
    """

    entry: Tensor  # [position, position]: the index of the pair in α
    # [entry]: the share of all attention in the training texts that the entry controls
    free: Tensor
    fixed: Tensor  # [group, entry]: 0 or 1 once settled, -1 before
    is_closed: Tensor  # whether a penalty had closed all entries when the mask settled

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
        # If weights are frozen, nothing is left to train after the mask has settled. So it settles with the last step.
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
        """Raise an error if the entries that can be closed do not allow this sparsity."""
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
        """Compute new values, in training mode with noise. In evaluation mode, and once settled, the mask is 0 or 1.

        A soft mask has no noise and never settles.
        """
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
        """Whether α of the entries that occur in the texts hardly moved. chosen: the binary mask, for a sparsity."""
        occur = self.free > 0
        is_open = None if chosen is None else chosen[:, occur]
        return is_undertrained(self.alpha.detach()[:, occur], self.start, is_open)

    def competing(self, progress: float) -> Tensor:
        """α; for a sparsity target, shifted such that the open share is right for this progress."""
        if self.target is None:
            return self.alpha
        return self.alpha + self.target.shift(self.alpha, self._expected_share, progress)

    def _expected_share(self, alpha: Tensor) -> Tensor:
        """The expected open share of a mask that is drawn from α."""
        return self.open_share(torch.sigmoid(alpha))

    def cost(self, progress: float) -> Tensor:
        return self._expected_share(self.alpha) * (0.0 if self.is_settled else self.penalty or 0.0)

    def edit(self) -> Edit:
        return LearnedMaskEdit(self)

    def open_share(self, values: Tensor) -> Tensor:
        """The open share of all attention in the training texts, mean over groups. values: [group, entry], 0 to 1."""
        return self.open_shares(values).mean()

    def open_shares(self, values: Tensor) -> Tensor:
        """[group]: the open share of each mask."""
        return self.always_open_share + (values * self.free).sum(dim=1)

    def binarize(self) -> Tensor:
        """[group, entry]: 1 for open entries, else 0. For a sparsity target, those with the largest α that fit."""
        if self.is_settled:
            return self.fixed.clone()
        alpha = self.alpha.detach()
        chosen = (alpha > 0).float() if self.sparsity is None else self._largest_that_fit(alpha)
        if not self.structured:
            return torch.maximum(chosen, self._best_of_rows(alpha))
        # These distances occur only in pairs with a first or last position, which are always open: not trained.
        chosen[:, self.free == 0] = 0.0
        return chosen

    def _largest_that_fit(self, alpha: Tensor) -> Tensor:
        """[group, entry]: 1 for the entries with the largest α, as long as they fit into the open share.

        Unless the mask is structured, the best entry of every position comes first, since every position needs a key.
        """
        assert self.sparsity is not None
        # The open share that is available, added up over groups; 1e-6 allows for rounding in the sums
        available = (1.0 - self.sparsity - self.always_open_share) * len(alpha) + 1e-6
        ranked = alpha
        if not self.structured:
            ranked = alpha.masked_fill(self._best_of_rows(alpha) > 0, math.inf)
        order = torch.argsort(ranked.flatten(), descending=True, stable=True)
        sizes = self.free.expand_as(alpha).flatten()[order].double()
        fits = sizes.cumsum(0) <= available
        # A structured mask has few and large entries: after one that does not fit, smaller ones may.
        if self.structured:
            available -= float(sizes[fits].sum())
            for i in (~fits).nonzero()[:, 0].tolist():
                if float(sizes[i]) <= available:
                    fits[i], available = True, available - float(sizes[i])
        chosen = torch.zeros(alpha.numel(), device=alpha.device)
        chosen[order[fits]] = 1.0
        return chosen.view_as(alpha)

    def _best_of_rows(self, alpha: Tensor) -> Tensor:
        """[group, entry]: 1 for the pair of every position and its key with the largest α, since each needs one key."""
        values = alpha[:, self.entry].clone()  # [group, query, key]
        if not self.diagonal and self.length > 1:
            values.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        rows = torch.arange(self.length, device=alpha.device)
        best = self.entry[rows, values.argmax(dim=-1)]  # [group, query]
        return torch.zeros_like(alpha).scatter_(1, best, 1.0)

    def map(self) -> Tensor:
        """[group, position, position] for the longest text: sigmoid(α), the probability that a pair is open.

        Pairs that are never open are 0; pairs with the first or last position are 1 in a structured mask.
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


# The value of each entry [group, entry], the value of always open pairs, and the value of never open pairs
Values = tuple[Tensor, float | bool, float | bool]


class LearnedMaskEdit(Edit):
    """Attention under the current mask; gradients flow into the mask's α."""

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
        """[sequence or 1, head or 1, query, key]: the values of a batch's pairs. values_of: from logits to values."""
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
        by_entry, always, never = values_of(learned.logits[list(rows)])  # by_entry: [group, entry]
        if learned.structured:
            distance = (position[:, :, None] - position[:, None, :]).abs()
            # by_entry[:, …] is [group, sequence, query, key]; the mask has sequences first
            full = by_entry[:, distance.clamp(0, learned.length - 1)].transpose(0, 1)
            full = torch.where((distance >= learned.length)[:, None], never, full)
            last = position.max(dim=1, keepdim=True).values
            ends = (position == 0) | (position == last)
            full = torch.where(ends[:, None, :, None] | ends[:, None, None, :], always, full)
        elif len(position) == 1:  # all sequences have the same positions
            full = by_entry[:, learned.entry[:keys, :keys]][None]
        else:
            real = position.clamp_min(0)
            full = by_entry[:, learned.entry[real[:, :, None], real[:, None, :]]].transpose(0, 1)
        if not learned.diagonal:
            full = torch.where(torch.eye(keys, dtype=torch.bool, device=full.device), never, full)
        # With a key-value cache, the queries are only the last positions.
        self._cache[key] = full[:, :, -shape[2] :]
        return self._cache[key]

    def _positions(self, site: Site, shape: Shape) -> Tensor:
        """[sequence or 1, key]: each token's position, not counting padding.

        One row for all sequences is enough if they have the same positions. For an unstructured mask, padding on the
        right does not matter, since the model hides it anyway.
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
    """Counts of pairs of positions in texts, by entry. lengths: number of texts of each length.

    Returns [position, position], the entry of each pair; [entry], the number of its pairs in all texts; the number of
    pairs that are always open; and the number of all pairs.
    """
    row, column = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    low, high = torch.minimum(row, column), torch.maximum(row, column)
    # Entries are distances, or the cells of the lower triangle, row by row.
    entry = high - low if structured else high * (high + 1) // 2 + low
    free = torch.zeros(length if structured else length * (length + 1) // 2, dtype=torch.float64)
    always_open = 0.0
    for size, count in lengths.items():
        is_free = torch.ones(size, size, dtype=torch.bool)
        if structured:  # the first and last position are always open
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
