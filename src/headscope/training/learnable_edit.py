"""What is learned beside the weights of a model, or instead of them: it changes attention, and costs something."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.edits import Edit

RAMP = 0.5  # share of the steps in which a target falls from all to what is to be left
MOVED = 1.0  # logits: what has moved less, or is no further apart, has hardly been learned
FARTHEST, HALVINGS = 64.0, 32  # where the number is looked for that holds a share, and how finely


class LearnableEdit(nn.Module):
    """Gates on heads, a mask on positions. rate: the learning rate of its parameters, constant after the warm-up."""

    rate: float
    settle: float
    fixed: Tensor  # below 0 until it is settled

    def edit(self) -> Edit:
        """What it does to attention, now."""
        raise NotImplementedError

    def groups(self) -> list[dict[str, Any]]:
        """Its parameters, as an optimizer takes them."""
        return [{"params": list(self.parameters()), "lr": self.rate, "weight_decay": 0.0}]

    def chosen(self) -> Tensor:
        """1 for what is to stay, 0 for the rest."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        return bool(self.fixed.flatten()[0] >= 0)

    def settles_at(self, total: int) -> int:
        """After how many of all steps."""
        return math.ceil(self.settle * total)

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


def is_undertrained(logits: Tensor, start: float, chosen: Tensor | None = None) -> bool:
    """Whether logits are next to where they began; where some are chosen, whether these are next to the others."""
    if chosen is None:
        return bool((logits - start).abs().max() < MOVED)
    kept, left = logits[chosen > 0], logits[chosen == 0]
    return bool(len(kept) and len(left) and kept.mean() - left.mean() < MOVED)


def short_training_note(what: str, steps: int, option: str) -> str:
    """What a user should know of a training that was too short."""
    return f"{what} had hardly moved in {steps} steps: train on more examples or epochs, or raise {option}"


class TargetShare:
    """Holds the open share at what it is to be by a number that is added to all logits: what one gains, others lose.

    share   in the end; in the first half of the steps it falls to that
    begun   the share before the first step
    """

    def __init__(self, share: float, begun: float) -> None:
        self.share, self.begun = share, begun

    def wanted(self, progress: float) -> float:
        return self.begun + (self.share - self.begun) * min(progress / RAMP, 1.0)

    def shift(
        self, logits: Tensor, share_of: Callable[[Tensor], Tensor], progress: float
    ) -> Tensor:
        """The number, with its gradient by the logits. share_of: the open share by such logits, rising in each."""
        wanted, low, high = self.wanted(progress), -FARTHEST, FARTHEST
        with torch.no_grad():
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if share_of(logits + middle) > wanted else (middle, high)
        found = logits.new_tensor((low + high) / 2).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(share_of(logits.detach() + found), found)
        share = share_of(logits + found.detach())
        # The value is that of `found`; the gradient is such that the share stays as it is.
        return found.detach() - (share - share.detach()) / slope.clamp_min(1e-12)
