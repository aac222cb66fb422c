"""The second door to the seam, for families with a softmax of their own: xlnet, mpnet, deberta-v2.

While a tap is open, and only inside the attention module's own method, the one softmax over [batch, head, query,
key] is seen and its input edited; the heads' outputs are edited where the family says they appear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.seam import Seam

_SOFTMAXES = {torch.softmax, torch.nn.functional.softmax, Tensor.softmax}
_PRODUCTS = {torch.matmul, torch.bmm, torch.einsum, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}


@dataclass(frozen=True)
class Tap:
    """Where a family attends.

    module      the class name of its attention module
    method      the method within which the softmax is taken, called once a site
    heads       how many heads such a module has
    edit        (what the method returned, editor of [batch, query, head, width]) -> what it should return
    projection  instead of `edit`: the submodule whose input is the heads' outputs side by side
    values      (what the weights are multiplied by, number of heads) -> [batch, head, key, width]
    output      where the output projection is no module: (attention module) -> its blocks [head, out, width]
    """

    module: str
    method: str
    heads: Callable[[Any], int]
    edit: Callable[[Any, Callable[[Tensor], Tensor]], Any] | None = None
    projection: str | None = None
    values: Callable[[Tensor, int], Tensor] = lambda values, heads: values
    output: Callable[[Any], Tensor] | None = None


class _SoftmaxMode(TorchFunctionMode):
    """Sees the attention softmax of one call of one module, and the values that its weights are multiplied by."""

    def __init__(self, seam: Seam, site: Site | None, tap: Tap, heads: int) -> None:
        super().__init__()
        self.seam, self.site, self.tap, self.heads, self.hits = seam, site, tap, heads, 0
        self.waiting: tuple[Site, Tensor, Tensor] | None = (
            None  # weights and scores that have met no values yet
        )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.waiting is not None and func in _PRODUCTS:
            site, weights, scores = self.waiting
            self.waiting = None
            self.seam.show(site, weights, scores, self.tap.values(args[-1], self.heads))
        if func not in _SOFTMAXES or not self._is_attention(args[0]):
            return func(*args, **kwargs)
        self.hits += 1
        scores = self.seam.edit_scores(self.site, self.seam.mask_scores(self.site, args[0]))
        weights = self.seam.edit_weights(self.site, func(scores, *args[1:], **kwargs))
        if self.site is not None and self.seam.is_watched(self.site):
            self.waiting = (
                self.site,
                weights.float() if weights.dtype.itemsize < 4 else weights,
                scores,
            )
        return weights

    def _is_attention(self, scores: Tensor) -> bool:
        return scores.dim() == 4 and scores.shape[1] == self.heads


@contextmanager
def open_tap(seam: Seam, tap: Tap) -> Iterator[None]:
    """Route the model's attention through the seam while this is open."""
    with ExitStack() as stack:
        for name, module in seam.root.named_modules():
            is_attention = any(
                cls.__name__ == tap.module for cls in type(module).__mro__
            )  # a cut one is a kind of it
            if is_attention and tap.heads(module):
                stack.enter_context(_tapped(seam, tap, name, module))
        yield


@contextmanager
def _tapped(seam: Seam, tap: Tap, name: str, module: nn.Module) -> Iterator[None]:
    original = getattr(module, tap.method)
    heads = tap.heads(module)
    current: list[Site | None] = [None]

    def edit(output: Tensor) -> Tensor:
        return seam.edit_output(current[0], output)

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        current[0] = site = seam.next_site(name, heads)
        with _SoftmaxMode(seam, site, tap, heads) as mode:
            result = original(*args, **kwargs)
        if mode.hits != 1 or mode.waiting is not None:
            raise HeadscopeError(
                f"{name} took {mode.hits} attention softmaxes",
                expected="one a call, and its product with values",
            )
        return result if tap.edit is None else tap.edit(result, edit)

    def edit_input(projection: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        side_by_side = args[0]
        return (edit(side_by_side.reshape(*side_by_side.shape[:-1], heads, -1)).flatten(-2),)

    handle = None
    if tap.projection is not None:
        handle = module.get_submodule(tap.projection).register_forward_pre_hook(edit_input)
    setattr(module, tap.method, method)
    try:
        yield
    finally:
        delattr(module, tap.method)
        if handle is not None:
            handle.remove()
