"""The rules of relevance: the same forward pass, and a backward pass in which everything that gates is held fixed.

A network of linear maps shares its result out among what went in by gradient times input, exactly. What is not linear
is made so where it stands, by what a function does and not by what a module is called:

norm         (x - mean) / deviation: the deviation is held fixed
activation   x times the ratio of result and x, which is held fixed
softmax      voita: the weights are held fixed, so that queries and keys get nothing; attnlrp: has its gradient
product      of two things that both depend on the input (a gated layer; under attnlrp also weights times values, and
             queries times keys): half of the gradient to each

The values of the forward pass do not change. Whatever is added without depending on the input (a bias) is told to
whoever keeps the accounts: with voita's rules the inputs and the biases together make up the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headscope.config.checks import check_rules
from headscope.model.attention_model import AttentionModel

Rules = Literal["voita", "attnlrp"]
RULES: tuple[Rules, ...] = ("voita", "attnlrp")

_ACTIVATIONS = {
    "gelu",
    "tanh",
    "silu",
    "mish",
    "elu",
    "hardswish",
    "relu",
    "relu_",
    "relu6",
    "leaky_relu",
}
_GATES = {
    "rsqrt",
    "sigmoid",
    "erf",
}  # only ever a factor: of a norm, of an activation that is written out
_PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "bmm", "einsum"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_DIFFERENCES = {"sub": 1, "__sub__": 1, "rsub": -1, "__rsub__": -1}


class Books(Protocol):
    """Who keeps the accounts."""

    def looked_up(self, states: Tensor, ids: Tensor) -> Tensor:
        """Embeddings as they come from a table; returns what the model should go on with."""

    def added(self, result: Tensor, constant: Tensor | float) -> None:
        """A constant was added, which gave this result."""


class _Rules(TorchFunctionMode):
    """Sees every torch function of a forward pass and makes linear what is not."""

    def __init__(self, rules: Rules, books: Books) -> None:
        super().__init__()
        self.rules, self.books = rules, books

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if name == "embedding":
            return self.books.looked_up(func(*args, **kwargs), args[0])
        if not _depends(args):
            return func(*args, **kwargs)
        special: dict[str, Callable[..., Any]] = {
            "layer_norm": self._layer_norm,
            "rms_norm": self._rms_norm,
            "softmax": self._softmax,
            "scaled_dot_product_attention": self._attention,
            "linear": self._linear,
            "addmm": self._sum_of_product,
            "baddbmm": self._sum_of_product,
        }
        if name in special:
            return special[name](func, *args, **kwargs)
        if name in _ACTIVATIONS:
            return with_fixed_ratio(func, *args, **kwargs)
        if name in _GATES:
            return func(*args, **kwargs).detach()
        if name in _PRODUCTS:
            return func(*_halved(args), **kwargs)
        if name in _SUMS or name in _DIFFERENCES:
            return self._sum(func, name, *args, **kwargs)
        return func(*args, **kwargs)

    def _layer_norm(
        self,
        func: Any,
        states: Tensor,
        shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        axes = tuple(range(-len(shape), 0))
        centred = states - states.mean(dim=axes, keepdim=True)
        fixed = (centred.detach().square().mean(dim=axes, keepdim=True) + eps).rsqrt()
        result = centred * (fixed if weight is None else fixed * weight)
        return result if bias is None else self._plus(result, bias)

    def _rms_norm(
        self,
        func: Any,
        states: Tensor,
        shape: Any,
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Tensor:
        axes = tuple(range(-len(shape), 0))
        least = torch.finfo(states.dtype).eps if eps is None else eps
        fixed = (states.detach().square().mean(dim=axes, keepdim=True) + least).rsqrt()
        return states * (fixed if weight is None else fixed * weight)

    def _softmax(self, func: Any, *args: Any, **kwargs: Any) -> Tensor:
        weights: Tensor = func(*args, **kwargs)
        return weights.detach() if self.rules == "voita" else weights

    def _attention(
        self, func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if self.rules == "voita":
            return func(query.detach(), key.detach(), value, *args, **kwargs)
        return func(
            scale_gradient(query, 0.25),
            scale_gradient(key, 0.25),
            scale_gradient(value, 0.5),
            *args,
            **kwargs,
        )

    def _linear(
        self, func: Any, states: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        result: Tensor = func(states, weight, bias)
        if bias is not None:
            self.books.added(result, bias)
        return result

    def _sum_of_product(
        self, func: Any, constant: Tensor, one: Tensor, other: Tensor, **kwargs: Any
    ) -> Tensor:
        result: Tensor = func(constant, *_halved((one, other)), **kwargs)
        if not constant.requires_grad and kwargs.get("beta", 1):
            self.books.added(result, kwargs.get("beta", 1) * constant)
        return result

    def _sum(self, func: Any, name: str, one: Any, other: Any, **kwargs: Any) -> Any:
        result = func(one, other, **kwargs)
        first, second = (isinstance(it, Tensor) and it.requires_grad for it in (one, other))
        if first and not second:
            sign = -1 if _DIFFERENCES.get(name) == 1 else 1
            self.books.added(result, sign * kwargs.get("alpha", 1) * other)
        elif second and not first:
            sign = -1 if _DIFFERENCES.get(name) == -1 else 1
            self.books.added(result, sign * one)
        return result

    def _plus(self, states: Tensor, bias: Tensor) -> Tensor:
        result = states + bias
        self.books.added(result, bias)
        return result


def with_fixed_ratio(
    function: Callable[..., Tensor], states: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """function(states) as states times a ratio that is held fixed; at 0 the ratio is the slope."""
    with torch.no_grad():
        result = function(states.detach().clone(), *args, **kwargs)
        ratio = result / states
        if bool((states == 0).any()):
            near = torch.full((), 1e-4, dtype=states.dtype, device=states.device)
            slope = function(near.clone(), *args, **kwargs) / near
            ratio = torch.where(states == 0, slope, ratio)
    return states * ratio


def scale_gradient(states: Tensor, share: float) -> Tensor:
    """The same values; of the gradient only a share goes on."""
    if not states.requires_grad:
        return states
    same = states.view_as(states)
    on_gradient(same, lambda slope: share * slope)
    return same


def on_gradient(states: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
    """Call with the derivative by this tensor when the backward pass comes by; what it returns goes on instead."""
    states.register_hook(hook)  # type: ignore[no-untyped-call]


def _halved(factors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Factors of a product, those that depend on the input with half of the gradient where there are two of them."""
    if sum(_depends((one,)) for one in factors) < 2:
        return factors
    return tuple(scale_gradient(one, 0.5) if isinstance(one, Tensor) else one for one in factors)


def _depends(args: Any) -> bool:
    return any(
        it.requires_grad
        if isinstance(it, Tensor)
        else isinstance(it, list | tuple) and _depends(it)
        for it in args
    )


@contextmanager
def linearise(model: AttentionModel, rules: Rules, books: Books) -> Iterator[None]:
    """The model's forward passes under these rules while this is open; everything is as before afterwards."""
    check_rules(rules)
    trained = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    with ExitStack() as stack:
        for parameter in trained:
            parameter.requires_grad_(False)
            stack.callback(parameter.requires_grad_, True)
        for module in model.model.modules():
            if _is_activation(module):
                stack.enter_context(_scaled_module(module))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_Rules(rules, books))
        yield


def _is_activation(module: nn.Module) -> bool:
    """An activation of transformers, which may be written out in several functions."""
    return type(module).__module__ == "transformers.activations"


@contextmanager
def _scaled_module(module: nn.Module) -> Iterator[None]:
    original = module.forward

    def forward(states: Tensor) -> Tensor:
        return with_fixed_ratio(original, states)

    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
