"""A mask on positions that is learned: SparseBERT's differentiable attention mask (Shi et al. 2021).

Every pair of positions has a number α, the same both ways, and M = sigmoid((α + logit u) / τ) with u uniform: the
colder τ, the nearer to 0 or 1, and P(M > 1/2) = sigmoid(α) at any τ. It acts on scores s in one of three forms:

    renormalised     softmax(s + log M): what M leaves of a row, divided by its sum
    additive         softmax(s - 10,000 (1 - M)), the paper's; the same for M of 0 and 1, but M = 0.99 forbids already
    multiplicative   softmax(s) M: rows no longer sum to 1

Once the mask is settled, M is 0 or 1 and what is 0 is forbidden before the softmax, whatever the form.
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

START = 3.0  # α; where all are equal, softmax(s + log M) is the model as it was
WARM, COLD = 1.0, 0.1  # τ at the first step, and when the mask settles
FAR = 10_000.0  # the additive form's constant
EDGE = 1e-6


class LearnedMask(LearnableEdit):
    """A mask for texts of these lengths.

    config      what the mask is like: soft, structured, without_diagonal, per, form, mask_rate, settle
    target      its penalty (in nats, for a mask that is open everywhere; paid by the open share), or its sparsity
                (reached by a penalty that is learned); None: the config's only one
    longest     length of the longest text that it will be applied to, if that is more
    start       α at the first step
    """

    entry: Tensor  # [position, position]: the index of the pair in α
    free: Tensor  # [entry]: its share of attention
    fixed: Tensor  # [group, entry]: 0 or 1 once settled
    bare: Tensor  # whether it was settled with all α closed
    hardly: Tensor  # whether it was settled before it had moved

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
        self.rate, self.settle = config.mask_rate, 1.0 if config.frozen else config.settle
        counted = Counter(lengths)
        self.length = max([*counted, longest or 0])
        self.groups_named = groups_of(model.heads, self.per)
        self.temperature = WARM
        entry, free, opened, total = _cells(
            counted, self.length, structured=self.structured, diagonal=self.diagonal
        )
        self.opened_share, self.total = opened / total, total
        device = model.device
        shape = len(self.groups_named), len(free)
        self.alpha = nn.Parameter(torch.full(shape, start, device=device))
        self.register_buffer("entry", entry.to(device), persistent=False)
        self.register_buffer("free", (free / total).to(device), persistent=False)
        self.register_buffer("fixed", torch.full(shape, -1.0, device=device))
        self.register_buffer("bare", torch.tensor(False, device=device))
        self.register_buffer("hardly", torch.tensor(False, device=device))
        self.start = start
        if self.sparsity is not None:
            self._check_reachable(self.sparsity)
        begun = float(self._expected_share(self.alpha.detach()))
        self.target = None if self.sparsity is None else TargetShare(1.0 - self.sparsity, begun)
        self.logits = self.alpha.detach()
        self.is_hard = False

    def _check_reachable(self, sparsity: float) -> None:
        most = 1.0 - self.opened_share
        if sparsity > most:
            raise HeadscopeError(
                f"{sparsity:g} of attention cannot go: what is always open is more than the rest",
                where="`sparsity`",
                expected=f"at most {math.floor(1000 * most) / 1000:g} for texts of these lengths",
            )
        least = 1.0 - self.opened_share - float(self.free.sum())
        if sparsity < least:
            raise HeadscopeError(
                f"the diagonal alone is {least:.3f} of attention",
                where="`sparsity`",
                expected=f"at least {math.ceil(1000 * least) / 1000:g}, or the diagonal kept",
            )

    # As something that is learned

    def draw(self, progress: float) -> None:
        """New noise, and colder; hard from the settling on, and whenever the model is judged."""
        if self.is_soft:
            self.logits = self.alpha
            if progress >= 1:
                self.hardly.fill_(self._hardly_moved(None))
            return
        if self.is_due(progress):
            chosen = self.chosen()
            self.hardly.fill_(self._hardly_moved(None if self.sparsity is None else chosen))
            self.fixed.copy_(chosen)
            is_open = bool((self.alpha.detach() > 0)[:, self.free > 0].any())
            self.bare.fill_(not is_open and self.sparsity is None)
        self.is_hard = self.is_settled or not self.training
        if self.is_hard:
            self.logits = self.chosen()
            return
        self.temperature = WARM * (COLD / WARM) ** min(progress / self.settle, 1.0)
        noise = torch.logit(torch.rand(self.alpha.shape), EDGE).to(self.alpha.device)
        self.logits = (self.competing(progress) + noise) / self.temperature

    def _hardly_moved(self, chosen: Tensor | None) -> bool:
        """Of the pairs that occur in the texts."""
        occur = self.free > 0
        chosen = None if chosen is None else chosen[:, occur]
        return is_undertrained(self.alpha.detach()[:, occur], self.start, chosen)

    def competing(self, progress: float) -> Tensor:
        """α, with a `sparsity` such that just so much is open as shall be by now."""
        if self.target is None:
            return self.alpha
        return self.alpha + self.target.shift(self.alpha, self._expected_share, progress)

    def _expected_share(self, alpha: Tensor) -> Tensor:
        return self.open_share(torch.sigmoid(alpha))

    def cost(self, progress: float) -> Tensor:
        return self._expected_share(self.alpha) * (0.0 if self.is_settled else self.penalty or 0.0)

    def edit(self) -> Edit:
        return LearnedMaskEdit(self)

    # What has been learned

    def open_share(self, values: Tensor) -> Tensor:
        """Of all attention in texts of these lengths, the share that is open by these values [group, entry]."""
        return self.open_shares(values).mean()

    def open_shares(self, values: Tensor) -> Tensor:
        """[group]: the same of each mask."""
        return self.opened_share + (values * self.free).sum(dim=1)

    def chosen(self) -> Tensor:
        """[group, entry]: 1 where attention may go. With `sparsity`, the most open entries as far as they fit in."""
        if self.is_settled:
            return self.fixed.clone()
        alpha = self.alpha.detach()
        found = (alpha > 0).float() if self.sparsity is None else self._fitting(alpha)
        if not self.structured:
            return torch.maximum(found, self._best_of_rows(alpha))
        # Distances that occur on open ends alone, of which nothing was learned.
        found[:, self.free == 0] = 0.0
        return found

    def _fitting(self, alpha: Tensor) -> Tensor:
        """The most open entries, the best of every row before all others, while there is room for them."""
        assert self.sparsity is not None
        room = (1.0 - self.sparsity - self.opened_share) * len(alpha) + 1e-6
        ranked = alpha
        if not self.structured:
            ranked = alpha.masked_fill(self._best_of_rows(alpha) > 0, math.inf)
        order = torch.argsort(ranked.flatten(), descending=True, stable=True)
        sizes = self.free.expand_as(alpha).flatten()[order].double()
        used = sizes.cumsum(0)
        taken = used <= room
        if self.structured:  # few and large: one that does not fit may be followed by some that do
            room -= float(sizes[taken].sum())
            for i in (~taken).nonzero()[:, 0].tolist():
                if float(sizes[i]) <= room:
                    taken[i], room = True, room - float(sizes[i])
        found = torch.zeros(alpha.numel(), device=alpha.device)
        found[order[taken]] = 1.0
        return found.view_as(alpha)

    def _best_of_rows(self, alpha: Tensor) -> Tensor:
        """[group, entry]: 1 at the most open key of every position, which needs one."""
        values = alpha[:, self.entry].clone()
        if not self.diagonal and self.length > 1:
            values.diagonal(dim1=1, dim2=2).fill_(-math.inf)
        rows = torch.arange(self.length, device=alpha.device)
        best = self.entry[rows, values.argmax(dim=-1)]  # [group, row]
        return torch.zeros_like(alpha).scatter_(1, best, 1.0)

    def map(self) -> Tensor:
        """[group, position, position] of the longest text: sigmoid(α), how open each pair is.

        What is never open is 0; the first and last position of a structured mask are 1.
        """
        with torch.no_grad():
            found = torch.sigmoid(self.competing(1.0))[:, self.entry]
            if self.structured:
                found[:, [0, -1]] = 1.0
                found[:, :, [0, -1]] = 1.0
            if not self.diagonal:
                found.diagonal(dim1=1, dim2=2).zero_()
        return found.cpu()

    def positions(self) -> MaskPositions:
        """What is chosen now, as it is written and every `--mask` takes it."""
        allowed = self.chosen().bool()
        held = (allowed if self.structured else allowed[:, self.entry]).cpu()
        return MaskPositions(self.groups_named, self.per, self.structured, self.diagonal, held)


# Each entry's value, and the values of what is always open and never open.
Made = tuple[Tensor, float | bool, float | bool]


class LearnedMaskEdit(Edit):
    """Attention under the mask of the moment; gradients flow into it."""

    def __init__(self, learned: LearnedMask) -> None:
        self.learned = learned
        self._layout: Layout | None = None
        self._made: dict[tuple[Any, ...], Tensor] = {}
        self._rows: dict[Site, list[int]] = {}

    def bind(self, heads: tuple[Head, ...]) -> None:
        named = {name: number for number, name in enumerate(self.learned.groups_named)}
        self._rows = {}
        for head in heads:
            if head.stack in ("encoder", "decoder"):
                keys = {"model": "all", "layer": str(head.site), "head": str(head)}
                here = self._rows.setdefault(head.site, [])
                number = named[keys[self.learned.per]]
                if self.learned.per == "head" or not here:
                    here.append(number)

    def begins(self, layout: Layout) -> None:
        self._layout, self._made = layout, {}

    def changes_mask(self, site: Site) -> bool:
        return site in self._rows and not self.changes_weights(site)

    def changes_weights(self, site: Site) -> bool:
        is_soft = self.learned.form == "multiplicative" and not self.learned.is_hard
        return site in self._rows and is_soft

    def allowed(self, site: Site, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
        learned = self.learned

        def made(logits: Tensor) -> Made:
            if learned.is_hard:
                return logits > 0.5, True, False
            if learned.form == "renormalised":
                return nn.functional.logsigmoid(logits), 0.0, -math.inf
            return -FAR * torch.sigmoid(-logits), 0.0, -math.inf  # 1 - M, to the last digit

        return self._over(site, shape, made)

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        shape = (weights.shape[0], weights.shape[1], weights.shape[2], weights.shape[3])
        return weights * self._over(site, shape, lambda logits: (torch.sigmoid(logits), 1.0, 0.0))

    def _over(
        self, site: Site, shape: tuple[int, int, int, int], made: Callable[[Tensor], Made]
    ) -> Tensor:
        """[sequence or 1, head or 1, query, key]: the entries' values at a batch's positions."""
        rows = tuple(self._rows[site])
        cached = (site.stack, rows, shape)
        if cached in self._made:
            return self._made[cached]
        learned, keys = self.learned, shape[3]
        if keys > learned.length and not learned.structured:
            raise HeadscopeError(
                f"a text of {keys} positions", expected=f"at most {learned.length}, as was learned"
            )
        place = self._places(site, shape)
        entry = learned.entry
        own, opened, closed = made(learned.logits[list(rows)])
        if learned.structured:
            distance = (place[:, :, None] - place[:, None, :]).abs()
            full = own[:, distance.clamp(0, learned.length - 1)].transpose(0, 1)
            full = torch.where((distance >= learned.length)[:, None], closed, full)
            last = place.max(dim=1, keepdim=True).values
            ends = (place == 0) | (place == last)
            full = torch.where(ends[:, None, :, None] | ends[:, None, None, :], opened, full)
        elif len(place) == 1:
            full = own[:, entry[:keys, :keys]][None]
        else:
            kept = place.clamp_min(0)
            full = own[:, entry[kept[:, :, None], kept[:, None, :]]].transpose(0, 1)
        if not learned.diagonal:
            full = torch.where(torch.eye(keys, dtype=torch.bool, device=full.device), closed, full)
        self._made[cached] = full[:, :, -shape[2] :]
        return self._made[cached]

    def _places(self, site: Site, shape: tuple[int, int, int, int]) -> Tensor:
        """[sequence or 1, key]: each token's position among the real ones; for an unstructured mask one row is enough
        where padding is on the right, as it is hidden anyway."""
        device = self.learned.alpha.device
        plain = torch.arange(shape[3], device=device)[None]
        sides = None if self._layout is None else self._layout.sides(site.stack)
        if sides is None or sides[0].real.shape != (shape[0], shape[3]):
            return plain
        real = sides[0].real.to(device)
        place = real.long().cumsum(dim=1) - 1
        if self.learned.structured:
            return plain if bool(real.all()) else torch.where(real, place, -1)
        return plain if bool((place == plain)[real].all()) else place


def _cells(
    lengths: Counter[int], length: int, *, structured: bool, diagonal: bool
) -> tuple[Tensor, Tensor, float, float]:
    """The place of each pair of positions in α; how often each occurs in these texts; what is open anyway; all."""
    row, column = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    low, high = torch.minimum(row, column), torch.maximum(row, column)
    entry = high - low if structured else high * (high + 1) // 2 + low
    free = torch.zeros(length if structured else length * (length + 1) // 2, dtype=torch.float64)
    opened = 0.0
    for size, count in lengths.items():
        here = torch.ones(size, size, dtype=torch.bool)
        if structured:
            here[[0, -1]] = False
            here[:, [0, -1]] = False
            opened += count * float((~here).sum())
        if not diagonal:
            opened -= 0.0 if not structured else count * min(2.0, size)
            here.fill_diagonal_(False)
        counts = torch.full((int(here.sum()),), float(count), dtype=torch.float64)
        free.index_add_(0, entry[:size, :size][here], counts)
    total = float(sum(count * size**2 for size, count in lengths.items()))
    return entry, free.float(), opened, total
