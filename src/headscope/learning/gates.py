"""A learned gate on every head: hard-concrete gates (Louizos et al. 2018), applied to heads as by Voita et al. (2019).

A gate multiplies the output of a head. It is a random number between 0 and 1, often exactly 0 or exactly 1, with a
gradient in between. Each gate has one parameter, log α:

    s = sigmoid((log u − log(1 − u) + log α) / β),  gate = clip(s (ζ − γ) + γ, 0, 1),  u uniform on (0, 1)

So P(gate ≠ 0) = sigmoid(log α − β log(−γ / ζ)). The penalty of a head is proportional to this probability. Without
noise, the gate is clip((ζ − γ) sigmoid(log α) + γ, 0, 1). All gates start open: without noise the model is unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from headscope.config.gate import RATE, SETTLE
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.surgery import units
from headscope.training.learnable_edit import LearnableEdit, TargetShare, is_undertrained

LOW, HIGH, BETA = -0.1, 1.1, 0.33  # γ, ζ and β of Voita's code
START = 3.0  # initial log α; a gate without noise is exactly 1 if log α is at least 2.4
EDGE = 1e-6  # smallest distance of u from 0 and 1


def open_probability(log_alpha: Tensor) -> Tensor:
    """P(gate ≠ 0)."""
    return torch.sigmoid(log_alpha - BETA * math.log(-LOW / HIGH))


def gate_of(log_alpha: Tensor, uniform: Tensor | None = None) -> Tensor:
    """The gate for these uniform random numbers; None: the gate without noise."""
    logits = log_alpha if uniform is None else (torch.logit(uniform, EDGE) + log_alpha) / BETA
    soft = torch.sigmoid(logits)
    return (soft * (HIGH - LOW) + LOW).clamp(0.0, 1.0)


class Gates(LearnableEdit):
    """One gate for each unit of heads that can be pruned: a head, or heads that share weights.

    penalty  penalty of an open head, in nats; or a number for each stack
    keep     number of heads to keep, instead of a penalty. Gates compete: a common number is added to all log α, such
             that the expected number of open heads falls to `keep` in the course of the training
    rate     learning rate of the gates
    settle   share of the steps after which gates are fixed at 0 or 1
    start    log α at the first step
    """

    fixed: Tensor  # [unit]: 0 or 1 once settled, -1 before
    sizes: Tensor  # [unit]: number of heads
    prices: Tensor  # [unit]: penalty if the unit is open

    def __init__(
        self,
        model: AttentionModel,
        *,
        penalty: float | Mapping[str, float] | None = None,
        keep: int | None = None,
        rate: float = RATE,
        settle: float = SETTLE,
        start: float = START,
    ) -> None:
        super().__init__()
        self.units: list[tuple[Head, ...]] = [tuple(unit) for unit in units(model)]
        self.penalty, self.keep, self.rate, self.settle = penalty, keep, rate, settle
        self.start = start
        self._check(model)
        count, device = len(self.units), model.device
        self.log_alpha = nn.Parameter(torch.full((count,), start, device=device))
        self.shift = torch.zeros((), device=device)  # added to log α by the competition
        sizes = [float(len(unit)) for unit in self.units]
        self.register_buffer("fixed", torch.full((count,), -1.0, device=device))
        self.register_buffer("undertrained", torch.tensor(False, device=device))
        self.register_buffer("sizes", torch.tensor(sizes, device=device))
        self.register_buffer("prices", self._prices(), persistent=False)
        initial = float(self._open_share(self.log_alpha.detach()))
        self.target = None if keep is None else TargetShare(keep / len(model.heads), initial)
        self.values = self.without_noise()

    def _check(self, model: AttentionModel) -> None:
        if (self.penalty is None) == (self.keep is None):
            raise HeadscopeError("gates require either `penalty` or `keep`")
        if self.keep is not None:
            self._check_reachable(self.keep, len(model.heads))
        by_stack = self.penalty if isinstance(self.penalty, Mapping) else {"": self.penalty or 0.0}
        stacks = sorted({head.stack for head in model.heads})
        for stack, price in by_stack.items():
            if not (price >= 0 and math.isfinite(price)):
                raise HeadscopeError(f"`penalty` must be at least 0, got {price}")
            if stack and stack not in stacks:
                what = f"`penalty` must name stacks of the model ({', '.join(stacks)}), got {stack}"
                raise HeadscopeError(what)

    def _check_reachable(self, keep: int, most: int) -> None:
        """Raise an error if units cannot add up to this number of heads. most: number of heads of the model."""
        if not 1 <= keep <= most:
            raise HeadscopeError(f"`keep` must be 1 to {most}, got {keep}")
        possible = [number for number in range(1, most + 1) if _sums(self.units)[0] >> number & 1]
        if keep not in possible:
            nearest = [n for n in possible if n < keep][-1:] + [n for n in possible if n > keep][:1]
            raise HeadscopeError(
                f"`keep` must be {' or '.join(map(str, nearest))}, as some heads share weights and "
                f"stay together, got {keep}"
            )

    def _prices(self) -> Tensor:
        penalty = self.penalty
        if isinstance(penalty, Mapping):
            prices = [sum(penalty.get(head.stack, 0.0) for head in unit) for unit in self.units]
        else:
            prices = [(penalty or 0.0) * len(unit) for unit in self.units]
        return torch.tensor(prices, device=self.log_alpha.device)

    def draw(self, progress: float) -> None:
        """Compute new values: with noise in training mode, until they are settled."""
        if self.is_due(progress):
            chosen = self.binarize()
            competing = None if self.keep is None else chosen
            self.undertrained.fill_(is_undertrained(self.log_alpha.detach(), self.start, competing))
            self.fixed.copy_(chosen)
        if self.is_settled:
            self.values = self.fixed
            return
        if self.target is not None:
            self.shift = self.target.shift(self.log_alpha, self._open_share, progress)
        if self.training:
            uniform = torch.rand(len(self.units)).to(self.log_alpha.device)
            self.values = gate_of(self.log_alpha + self.shift, uniform)
        else:
            self.values = self.without_noise()

    def cost(self, progress: float) -> Tensor:
        # With `keep`, competition closes the gates, and no penalty is needed.
        price = 0.0 if self.is_settled or self.target is not None else self.prices
        return (open_probability(self.log_alpha) * price).sum()

    def _open_share(self, log_alpha: Tensor) -> Tensor:
        """The expected share of open heads."""
        return (open_probability(log_alpha) * self.sizes).sum() / self.sizes.sum()

    def edit(self) -> Edit:
        return GateEdit(self)

    def without_noise(self) -> Tensor:
        """[unit]: the gates without noise."""
        with torch.no_grad():
            return self.fixed.clone() if self.is_settled else gate_of(self.log_alpha + self.shift)

    def binarize(self) -> Tensor:
        """[unit]: 1 for open gates, else 0. With `keep`, gates with large log α that have `keep` heads in total."""
        if self.is_settled:
            return self.fixed.clone()
        if self.keep is None:
            return (gate_of(self.log_alpha.detach()) >= 0.5).float()
        is_open, missing = torch.zeros_like(self.fixed), self.keep
        order = torch.argsort(self.log_alpha.detach(), descending=True, stable=True).tolist()
        later = _sums([self.units[unit] for unit in order])[1:]
        for unit, reachable in zip(order, later, strict=True):
            size = len(self.units[unit])
            # Open the unit only if later ones can add up to exactly the number of heads that is still missing.
            if size <= missing and reachable >> (missing - size) & 1:
                is_open[unit] = 1.0
                missing -= size
        return is_open

    def by_head(self, values: Sequence[float]) -> dict[Head, float]:
        """The value of every head, from values [unit] of the units."""
        return {
            head: value for unit, value in zip(self.units, values, strict=True) for head in unit
        }


def _sums(units: Sequence[tuple[Head, ...]]) -> list[int]:
    """The numbers of heads that units can add up to, as bit sets (subset sum).

    Bit n of item i is set if some of the units from index i on have n heads in total. The last item is for no units.
    """
    sums = [1]
    for unit in reversed(units):
        sums.append(sums[-1] | sums[-1] << len(unit))
    return sums[::-1]


class GateEdit(Edit):
    """Multiplies every head's output by its current gate; gradients flow into the gates."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self._unit: dict[Site, Tensor] = {}

    def bind(self, heads: tuple[Head, ...]) -> None:
        numbers = {head: number for number, unit in enumerate(self.gates.units) for head in unit}
        by_site: dict[Site, list[int]] = {}
        for head in heads:
            by_site.setdefault(head.site, []).append(numbers[head])
        device = self.gates.log_alpha.device
        self._unit = {site: torch.tensor(n, device=device) for site, n in by_site.items()}

    def changes_output(self, site: Site) -> bool:
        return site in self._unit

    def output(self, site: Site, output: Tensor) -> Tensor:
        return output * self.gates.values[self._unit[site]].to(output.dtype)[:, None]
