"""The softmax tap: the seam's backend for families whose own code calls softmax (XLNet, MPNet, DeBERTa-v2).

While a tap is open, the softmax over [batch, head, query, key] inside the attention module's method is intercepted. Its
input and result are edited and observed. The outputs of heads are edited where the family's `Tap` specifies.
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
    """Where the attention code of a family computes softmax, values and outputs.

    module      the class name of the attention module
    method      the method that calls softmax; called once per site
    heads       function of an attention module: its number of heads
    edit        function of (result of the method, function that edits [batch, query, head, width]): the edited result
    projection  used if there is no `edit`: the submodule whose input is the concatenated outputs of the heads
    values      function of (second factor of the product with the weights, number of heads): values as [batch, head,
                key, width]
    output      needed if the output projection is not a module: function of the attention module, which returns the
                blocks of the projection [head, out, width]
    """

    module: str
    method: str
    heads: Callable[[Any], int]
    edit: Callable[[Any, Callable[[Tensor], Tensor]], Any] | None = None
    projection: str | None = None
    values: Callable[[Tensor, int], Tensor] = lambda values, heads: values
    output: Callable[[Any], Tensor] | None = None


class _SoftmaxMode(TorchFunctionMode):
    """Intercepts the attention softmax in one call of one module, and then the product of weights and values.

    Observers get weights, scores and values together. Values are not known until the weights are multiplied by them, so
    weights and scores wait for the next matrix product after the softmax.
    """

    def __init__(self, seam: Seam, site: Site | None, tap: Tap, heads: int) -> None:
        super().__init__()
        self.seam, self.site, self.tap, self.heads = seam, site, tap, heads
        self.softmaxes = 0  # number of attention softmaxes in this call; must be 1
        self.waiting: tuple[Site, Tensor, Tensor] | None = None  # site, weights, scores

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.waiting is not None and func in _PRODUCTS:
            site, weights, scores = self.waiting
            self.waiting = None
            self.seam.observe_batch(site, weights, scores, self.tap.values(args[-1], self.heads))
        if func not in _SOFTMAXES or not self._is_attention(args[0]):
            return func(*args, **kwargs)
        self.softmaxes += 1
        scores = self.seam.edit_scores(self.site, self.seam.mask_scores(self.site, args[0]))
        weights = self.seam.edit_weights(self.site, func(scores, *args[1:], **kwargs))
        if self.site is not None and self.seam.is_observed(self.site):
            observed = weights.float() if weights.dtype.itemsize < 4 else weights
            self.waiting = self.site, observed, scores
        return weights

    def _is_attention(self, scores: Tensor) -> bool:
        """Whether a tensor has the shape [batch, head, query, key] of attention scores."""
        return scores.dim() == 4 and scores.shape[1] == self.heads


@contextmanager
def open_tap(seam: Seam, tap: Tap) -> Iterator[None]:
    """While open, route the attention of the seam's model through the seam."""
    with ExitStack() as stack:
        for name, module in seam.root.named_modules():
            # Base classes count too: pruning may replace the class of a module by a subclass.
            classes = {cls.__name__ for cls in type(module).__mro__}
            if tap.module in classes and tap.heads(module):
                stack.enter_context(_tap_module(seam, tap, name, module))
        yield


@contextmanager
def _tap_module(seam: Seam, tap: Tap, name: str, module: nn.Module) -> Iterator[None]:
    """While open, route the attention of one module through the seam."""
    original = getattr(module, tap.method)
    heads = tap.heads(module)
    current: Site | None = None

    def edit(output: Tensor) -> Tensor:
        return seam.edit_output(current, output)

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        nonlocal current
        current = seam.next_site(name, heads)
        with _SoftmaxMode(seam, current, tap, heads) as mode:
            result = original(*args, **kwargs)
        if mode.softmaxes != 1 or mode.waiting is not None:
            raise HeadscopeError(
                f"{name} took {mode.softmaxes} attention softmaxes",
                expected="one a call, and its product with values",
            )
        return result if tap.edit is None else tap.edit(result, edit)

    def edit_input(projection: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        outputs = args[0]  # [batch, query, head * width]
        by_head = outputs.reshape(*outputs.shape[:-1], heads, -1)
        return (edit(by_head).flatten(-2),)

    with ExitStack() as stack:
        if tap.projection is not None:
            projection = module.get_submodule(tap.projection)
            stack.callback(projection.register_forward_pre_hook(edit_input).remove)
        # An attribute of the instance hides the method of the class.
        setattr(module, tap.method, method)
        stack.callback(delattr, module, tap.method)
        yield
