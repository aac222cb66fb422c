"""What is learned beside the weights of a model, or instead of them: it changes attention, and costs something."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.model.edits import Edit

RAMP = 0.5  # share of the steps in which a target falls from all to what is to be left


class Learned(nn.Module):
    """Gates on heads, a mask on positions. rate: the learning rate of its parameters, constant after the warm-up."""

    rate: float
    settle: float
    target: TargetShare | None
    fixed: Tensor  # below 0 until it is settled

    def edit(self) -> Edit:
        """What it does to attention, now."""
        raise NotImplementedError

    def groups(self) -> list[dict[str, Any]]:
        """Its parameters, as an optimizer takes them."""
        own = [value for name, value in self.named_parameters() if not name.startswith("target.")]
        found: list[dict[str, Any]] = [{"params": own, "lr": self.rate, "weight_decay": 0.0}]
        return found if self.target is None else [*found, self.target.group(self.rate)]

    def chosen(self) -> Tensor:
        """1 for what is to stay, 0 for the rest."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        return bool(self.fixed.flatten()[0] >= 0)

    def is_due(self, progress: float) -> bool:
        """Whether it is to be settled now."""
        return progress >= self.settle and not self.is_settled

    def draw(self, progress: float) -> None:
        """Before every step: new noise, another temperature. progress: from 0 at the first step to 1 after the last.

        Called in evaluation mode too, before the model is judged: then without noise.
        """

    def cost(self, progress: float) -> Tensor:
        """What is added to the loss, after `draw`."""
        raise NotImplementedError


def check_rate(rate: float, option: str, settle: float) -> None:
    """Refuse what cannot be a learning rate, or the share of the steps after which what is learned is settled."""
    if not 0 < settle <= 1:
        raise HeadscopeError(f"{settle} is no share", where="--settle", expected="more than 0, at most 1")
    if not rate > 0:
        raise HeadscopeError(f"{rate} is no rate", where=option, expected="more than 0")


class TargetShare(nn.Module):
    """A price for what is open that is learned until the open share is what it is to be (a Lagrangian)."""

    def __init__(self, share: float, device: torch.device) -> None:
        super().__init__()
        self.share = share
        self.strength = nn.Parameter(torch.zeros(2, device=device))  # linear and quadratic

    def cost(self, share: Tensor, progress: float) -> Tensor:
        wanted = 1.0 + (self.share - 1.0) * min(progress / RAMP, 1.0)
        over = share - wanted
        return self.strength[0] * over + self.strength[1] * over**2

    def group(self, rate: float) -> dict[str, Any]:
        """Its parameters, as an optimizer takes them: they climb."""
        return {"params": [self.strength], "lr": rate, "weight_decay": 0.0, "maximize": True}
