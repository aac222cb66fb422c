"""What is learned beside the weights of a model, or instead of them: it changes attention, and costs something."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headscope.model.edits import Edit


class Learned(nn.Module):
    """Gates on heads, a mask on positions. rate: the learning rate of its parameters, constant after the warm-up."""

    rate: float

    def edit(self) -> Edit:
        """What it does to attention, now."""
        raise NotImplementedError

    def groups(self) -> list[dict[str, Any]]:
        """Its parameters, as an optimizer takes them."""
        return [{"params": list(self.parameters()), "lr": self.rate, "weight_decay": 0.0}]

    def draw(self, progress: float) -> None:
        """Before every step: new noise, another temperature. progress: from 0 at the first step to 1 after the last.

        Called in evaluation mode too, before the model is judged: then without noise.
        """

    def cost(self, progress: float) -> Tensor:
        """What is added to the loss, after `draw`."""
        raise NotImplementedError
