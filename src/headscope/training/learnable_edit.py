"""Base class for trainable edits (gates, masks): extra parameters, an attention edit and a penalty term."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.edits import Edit

RAMP = 0.5  # share of the steps in which the open share falls from its start to its target
MOVED = 1.0  # logits that moved less than this, or are no further apart, are hardly trained
FARTHEST, HALVINGS = 64.0, 32  # range and number of bisection steps of `TargetShare.shift`


class LearnableEdit(nn.Module):
    """Gates on heads, or a mask on positions.

    rate    learning rate of its parameters, constant after the warm-up
    settle  share of the steps after which its values are fixed at 0 or 1
    """

    rate: float
    settle: float
    fixed: Tensor  # the values once settled; below 0 before
    undertrained: Tensor  # whether it was settled before it had moved

    def edit(self) -> Edit:
        """The edit of attention with the current values."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Its parameters, for an optimizer."""
        return [{"params": list(self.parameters()), "lr": self.rate, "weight_decay": 0.0}]

    def binarize(self) -> Tensor:
        """1 where it is to be open, else 0."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        return bool(self.fixed.flatten()[0] >= 0)

    def settling_step(self, total: int) -> int:
        """The step after which it is settled, of a total number of steps."""
        return math.ceil(self.settle * total)

    def is_due(self, progress: float) -> bool:
        """Whether it is to be settled now."""
        return progress >= self.settle and not self.is_settled

    def draw(self, progress: float) -> None:
        """New noise and temperature, before every step. progress: from 0 at the first step to 1 after the last.

        Also called in evaluation mode before the model is evaluated: then without noise.
        """

    def cost(self, progress: float) -> Tensor:
        """The penalty that is added to the loss, after `draw`."""
        raise NotImplementedError


def is_undertrained(logits: Tensor, start: float, is_open: Tensor | None = None) -> bool:
    """Whether logits are near their start; with `is_open`, whether the open ones are near the others."""
    if is_open is None:
        return bool((logits - start).abs().max() < MOVED)
    kept, closed = logits[is_open > 0], logits[is_open == 0]
    return bool(len(kept) and len(closed) and kept.mean() - closed.mean() < MOVED)


def short_training_note(what: str, steps: int, option: str) -> str:
    """A note for the user on a training that was too short."""
    return f"{what} had hardly moved in {steps} steps: train on more examples or epochs, or raise {option}"


class TargetShare:
    """Holds the open share at a target by adding one number to all logits, so that logits compete.

    share    the share at the end; it falls to that linearly in the first half of the steps
    initial  the share before the first step
    """

    def __init__(self, share: float, initial: float) -> None:
        self.share, self.initial = share, initial

    def shift(
        self, logits: Tensor, share_of: Callable[[Tensor], Tensor], progress: float
    ) -> Tensor:
        """The number, with its gradient by the logits. share_of: the open share of logits, rising in each of them."""
        target = self.initial + (self.share - self.initial) * min(progress / RAMP, 1.0)
        low, high = -FARTHEST, FARTHEST
        with torch.no_grad():
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if share_of(logits + middle) > target else (middle, high)
        shift = logits.new_tensor((low + high) / 2).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(share_of(logits.detach() + shift), shift)
        share = share_of(logits + shift.detach())
        # The value is that of `shift`; by the implicit function theorem its gradient keeps the share constant.
        return shift.detach() - (share - share.detach()) / slope.clamp_min(1e-12)
