"""Base class for trainable edits (gates, masks): extra parameters, an attention edit and a penalty term."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.edits import Edit

RAMP = 0.5  # share of the training steps in which the open share falls to its target
MOVED = 1.0  # logits count as trained if they moved, or differ, by at least this much
FARTHEST, HALVINGS = 64.0, 32  # largest shift and number of bisection steps of `TargetShare.shift`


class LearnableEdit(nn.Module):
    """Base class of gates on heads and masks on positions. Its values are settled (fixed at 0 or 1) during training.

    rate    learning rate of its parameters, constant after the warm-up
    settle  share of the steps after which its values are settled
    """

    rate: float
    settle: float
    fixed: Tensor  # 0 or 1 once settled, -1 before
    undertrained: Tensor  # whether its logits had hardly moved when it was settled

    def edit(self) -> Edit:
        """The edit that applies the current values to attention."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Its parameters, as parameter groups of an optimizer."""
        return [{"params": list(self.parameters()), "lr": self.rate, "weight_decay": 0.0}]

    def binarize(self) -> Tensor:
        """The values as 1 (open) or 0 (closed), without noise."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        return bool(self.fixed.flatten()[0] >= 0)

    def settling_step(self, total: int) -> int:
        """The number of the step after which it is settled. total: number of steps."""
        return math.ceil(self.settle * total)

    def is_due(self, progress: float) -> bool:
        """Whether it is to be settled now."""
        return progress >= self.settle and not self.is_settled

    def draw(self, progress: float) -> None:
        """Compute the values for the next step, with new noise; settle them if it is time.

        Also called in evaluation mode, before the model is evaluated; then there is no noise.

        progress  share of the steps that are done: 0 before the first step, 1 after the last
        """

    def cost(self, progress: float) -> Tensor:
        """The penalty that is added to the loss. Called after `draw`."""
        raise NotImplementedError


def is_undertrained(logits: Tensor, start: float, is_open: Tensor | None = None) -> bool:
    """Whether all logits are still near their start.

    is_open  which logits are open, if they competed: then whether the mean of the open ones is near that of the others
    """
    if is_open is None:
        return bool((logits - start).abs().max() < MOVED)
    kept, closed = logits[is_open > 0], logits[is_open == 0]
    return bool(len(kept) and len(closed) and kept.mean() - closed.mean() < MOVED)


def short_training_note(what: str, steps: int, option: str) -> str:
    """A note for the user on a training that was too short."""
    return f"{what} had hardly moved in {steps} steps: train on more examples or epochs, or raise {option}"


class TargetShare:
    """Keeps the open share at a target by adding one number to all logits. So logits compete.

    initial  the open share before the first step
    share    the open share at the end: it falls linearly in the first half of the steps, and then stays the same
    """

    def __init__(self, share: float, initial: float) -> None:
        self.share, self.initial = share, initial

    def shift(
        self, logits: Tensor, share_of: Callable[[Tensor], Tensor], progress: float
    ) -> Tensor:
        """The number to add, as a differentiable function of the logits.

        share_of  function from logits to the open share, increasing in every logit
        """
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
        # The result has the value of `shift`, since the other term is 0. Its gradient is that of the implicit function
        # theorem: the shift changes with the logits such that the share stays constant.
        return shift.detach() - (share - share.detach()) / slope.clamp_min(1e-12)
