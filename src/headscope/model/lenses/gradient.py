"""The gradient lens: what the loss would lose with an edge, to first order.

With g = ∂loss/∂A the map is |A·g|, scaled so that a sequence's map of a head sums to its number of rows: rows do not
sum to 1, as many rows of a last layer may matter to nobody, but sums of cells are shares of the whole. `gradient` is g
itself; `row_totals` are the rows' sums before the scaling. A map is known only when the gradient comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.model.attention import Attention
from headscope.model.lenses._base import SIGN, HeadMaps, Lens

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel
    from headscope.model.one_input import OneInput


class GradientLens(Lens):
    name = "gradient"
    gives = frozenset({SIGN})
    needs_gradient = True
    how = (
        "Attention times the gradient of {output}: what the edge adds to it, to first order; below 0 it takes away. "
        "A head's numbers together are what it adds by its output."
    )

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        if model.model.dtype.itemsize < 4:
            raise HeadscopeError(
                f"gradients of {str(model.model.dtype).removeprefix('torch.')} are too coarse",
                where="lens gradient",
                fix="Load the model with dtype float32",
            )

    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        assert gradient is not None
        cells = torch.mul(attention.weights, gradient).abs_()
        totals = cells.sum(dim=-1)
        whole = totals.sum(dim=-1)[..., None, None]  # [sequence, head, 1, 1]
        seen = attention.through(
            self.name, cells.mul_(torch.where(whole > 0, attention.length / whole, 0.0))
        )
        seen.row_totals, seen.gradient = totals, gradient
        return seen

    def draw(self, text: OneInput) -> HeadMaps:
        """Weights times gradients, with their sign."""
        weights, gradients, output = text.gradients
        maps = {site: weights[site] * gradients[site] for site in weights}
        return HeadMaps(maps, self.how.format(output=output))


def subtract_row_mean(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient less its mean under the row's weights: what moving weight to a key changes."""
    return gradient - (weights * gradient).sum(dim=-1, keepdim=True)


@contextmanager
def track_embeddings(model: AttentionModel) -> Iterator[list[Tensor]]:
    """Gradients go back to what embeddings gave, and to no parameter: the tensors to ask for, filled by a forward.

    Not all of them are always used (allow_unused). Parameters are frozen while this is open, as a graph that leads to
    them keeps every layer's input.
    """
    parameters = [one for one in model.model.parameters() if one.requires_grad]
    reached: list[Tensor] = []

    def start(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        reached.append(output.detach().requires_grad_())
        return reached[-1]

    modules = [one for one in model.model.modules() if isinstance(one, nn.Embedding)]
    hooks = [
        one.register_forward_hook(start) for one in {*modules, model.model.get_input_embeddings()}
    ]
    for one in parameters:
        one.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield reached
    finally:
        for hook in hooks:
            hook.remove()
        for one in parameters:
            one.requires_grad_(True)
