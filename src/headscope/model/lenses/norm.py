"""The norm lens (Kobayashi et al. 2020): attention weights times the length of the vectors that they weight.

A head adds α_ij f(x_j) to token i, where f(x_j) = (x_j W_V + b_V) W_O is the value multiplied by the head's block of
the output projection. The map is the length of this vector, ‖α_ij f(x_j)‖ = α_ij ‖f(x_j)‖, divided by the sum of its
row. `row_totals` are these sums. No vectors f(x_j) are stored: ‖f(x_j)‖² = v_j' (W_O W_O') v_j needs only one small
square matrix per head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.model.attention import Attention, Layer
from headscope.model.contributions import additions, block_input
from headscope.model.lenses._base import ROWS, SIGN, HeadMaps, Lens, projections

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel
    from headscope.model.one_input import OneInput


class NormLens(Lens):
    name = "norm"
    gives = frozenset({ROWS, SIGN})
    how = (
        "Norm-weighted attention (Kobayashi 2020): the weight times the norm of the projected value vector, which is "
        "the norm of what the head adds to one token from another. Rows need not sum to 1."
    )

    def __init__(self, model: AttentionModel) -> None:
        super().__init__(model)
        self.blocks = projections(model, self.name)
        self.squares = {site: blocks.mT @ blocks for site, blocks in self.blocks.items()}
        self.additions = additions(model)
        self._inputs: dict[str, Tensor] = {}  # the last input of each block

    @contextmanager
    def open(self) -> Iterator[None]:
        """While open, store the inputs of blocks: they are the residual to which heads' outputs are added."""
        modules = dict(self.model.model.named_modules())
        with ExitStack() as stack:
            for name in {addition.block for addition in self.additions.values()}:
                store = partial(self._store_input, name)
                hook = modules[name].register_forward_pre_hook(store, with_kwargs=True)
                stack.callback(hook.remove)
            stack.callback(self._inputs.clear)
            yield

    def _store_input(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._inputs[name] = block_input(args, kwargs).detach()

    def layer(self, attention: Attention) -> Layer:
        """What happens to the outputs of this call's heads: projection, residual and LayerNorm, as far as known."""
        blocks = self.blocks[attention.site].to(attention.weights)
        addition = self.additions.get(attention.site)
        if addition is None or addition.block not in self._inputs:
            return Layer(blocks)
        states = self._inputs[addition.block][attention.rows][:, attention.query_index].to(blocks)
        return Layer(blocks, states, addition.gain)

    def lengths(self, attention: Attention) -> Tensor:
        """[sequence, head, key]: ‖f(x_j)‖."""
        values = attention.values
        assert values is not None
        square = self.squares[attention.site].to(values)
        return (values @ square).mul_(values).sum(dim=-1).clamp_min_(0).sqrt_()

    def apply(self, attention: Attention, gradient: Tensor | None = None) -> Attention:
        lengths = self.lengths(attention)[:, :, None, :]
        cells = torch.mul(attention.weights, lengths, out=attention.buffer("norm"))
        totals = cells.sum(dim=-1)
        cells.div_(torch.where(totals > 0, totals, 1.0)[..., None])  # rows that are 0 stay 0
        result = attention.through(self.name, cells)
        result.row_totals, result.layer = totals, self.layer(attention)
        return result

    def draw(self, text: OneInput) -> HeadMaps:
        """Lengths instead of shares of a row, so that heads and tokens can be compared."""

        def lengths(attention: Attention) -> Tensor:
            assert attention.row_totals is not None
            return attention.weights * attention.row_totals[..., None]

        return HeadMaps(text.observe(self, lengths), self.how)
