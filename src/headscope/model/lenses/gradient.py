"""The gradient lens: the change of the loss if an edge were removed, to first order.

With g = ∂loss/∂A the map is |A·g|, scaled so that a sequence's map of a head sums to its number of rows: rows do not
sum to 1, since many rows of a last layer may have no effect, but sums of cells are shares of the whole. `gradient` is g
itself; `row_totals` are the rows' sums before the scaling. A map is known only after the backward pass.
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
        "Attention × gradient of {output}: what a weight contributes to it, to first order; negative: it lowers it. "
        "The sum over a head's map is the contribution of the head."
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
        cells.mul_(torch.where(whole > 0, attention.length / whole, 0.0))
        result = attention.through(self.name, cells)
        result.row_totals, result.gradient = totals, gradient
        return result

    def draw(self, text: OneInput) -> HeadMaps:
        """Weights times gradients, with their sign."""
        weights, gradients, output = text.gradients
        maps = {site: weights[site] * gradients[site] for site in weights}
        return HeadMaps(maps, self.how.format(output=output))


def subtract_row_mean(weights: Tensor, gradient: Tensor) -> Tensor:
    """The gradient minus its mean under the row's weights: the effect of moving weight to a key."""
    return gradient - (weights * gradient).sum(dim=-1, keepdim=True)


@contextmanager
def track_embeddings(model: AttentionModel) -> Iterator[list[Tensor]]:
    """Start the graph at the outputs of embeddings, not at parameters; a forward pass fills the list of these outputs.

    Some may not be used (allow_unused). Parameters are frozen while this is open, since a graph that leads to them
    keeps every layer's input.
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
