"""The gradient lens: how much the loss would change if an attention weight were set to 0, to first order.

With weights A and the gradient g = ∂loss/∂A, the map is |A·g|. It is scaled so that the map of a head in one sequence
sums to its number of rows. Rows do not sum to 1, since many rows of the last layer may have no effect on the loss.
Sums of cells can still be read as shares of the map. `Attention.gradient` is g itself, and `row_totals` are the sums of
rows before scaling. Maps are available only in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        "Attention × gradient. The gradient is that of {output}. A number is what the weight contributes to this "
        "output, to first order; negative numbers lower it. The sum over a head's map is the contribution of the head."
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
        totals = cells.sum(dim=-1)  # [sequence, head, query]
        map_sum = totals.sum(dim=-1)[..., None, None]  # [sequence, head, 1, 1]
        cells.mul_(torch.where(map_sum > 0, attention.length / map_sum, 0.0))
        result = attention.through(self.name, cells)
        result.row_totals, result.gradient = totals, gradient
        return result

    def draw(self, text: OneInput) -> HeadMaps:
        """Weights times gradients with their sign, not scaled."""
        weights, gradients, output = text.gradients
        maps = {site: weights[site] * gradients[site] for site in weights}
        return HeadMaps(maps, self.how.format(output=output))


def subtract_row_mean(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient minus its mean over each row, weighted by the row: the effect of moving weight to a key."""
    return gradient - (weights * gradient).sum(dim=-1, keepdim=True)


@contextmanager
def track_embeddings(model: AttentionModel) -> Iterator[list[Tensor]]:
    """While open, the autograd graph starts at the outputs of embedding layers instead of at the parameters.

    Yields a list to which a forward pass adds these outputs. The loss may not depend on some of them, so that autograd
    needs `allow_unused`. Parameters are frozen, because a graph with parameters stores the input of every layer.
    """
    outputs: list[Tensor] = []

    def start_graph(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        outputs.append(output.detach().requires_grad_())
        return outputs[-1]

    modules = {module for module in model.model.modules() if isinstance(module, nn.Embedding)}
    with ExitStack() as stack:
        for module in modules | {model.model.get_input_embeddings()}:
            stack.callback(module.register_forward_hook(start_graph).remove)
        for parameter in model.model.parameters():
            if parameter.requires_grad:
                stack.callback(parameter.requires_grad_, True)
                parameter.requires_grad_(False)
        with torch.enable_grad():
            yield outputs
