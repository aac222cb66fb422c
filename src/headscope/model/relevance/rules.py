"""The rules of relevance: the same forward pass, and a backward pass in which every gate is held fixed.

In a network of linear maps, gradient times input attributes the output to the inputs exactly. Functions that are not
linear are linearised by what they compute, not by the names of modules:

norm         (x - mean) / deviation: the deviation is held fixed
activation   x times the ratio of result and x, which is held fixed
softmax      voita: the weights are held fixed, so that queries and keys get nothing; attnlrp: keeps its gradient
product      of two factors that both depend on the input (a gated layer; under attnlrp also weights times values, and
             queries times keys): half of the gradient to each

References: Voita et al. 2021 (relevance in translation), Ali et al. 2022 (weights of attention and deviations of norms
held fixed), Achtibat et al. 2024 (AttnLRP: softmax and products).

The values of the forward pass do not change. Constants that are added (biases) are reported to a `Ledger`: with
voita's rules the inputs and the biases together make up the result.
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

_ACTIVATIONS = {"gelu", "tanh", "silu", "mish", "elu", "hardswish"}
_ACTIVATIONS |= {"relu", "relu_", "relu6", "leaky_relu"}
_GATES = {"rsqrt", "sigmoid", "erf"}  # always a factor: of a norm, or of an activation written out
_PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "bmm", "einsum"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_DIFFERENCES = {"sub": 1, "__sub__": 1, "rsub": -1, "__rsub__": -1}


class Ledger(Protocol):
    """Records the inputs and the constants of a forward pass."""

    def add_embedding(self, states: Tensor, ids: Tensor) -> Tensor:
        """Record embeddings from a table; returns the states that the model continues with."""

    def add_constant(self, result: Tensor, constant: Tensor | float) -> None:
        """Record a constant that was added, with the result."""


class _Rules(TorchFunctionMode):
    """Intercepts every torch function of a forward pass and linearises it by the rules."""

    def __init__(self, rules: Rules, ledger: Ledger) -> None:
        super().__init__()
        self.rules, self.ledger = rules, ledger

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if name == "embedding":
            return self.ledger.add_embedding(func(*args, **kwargs), args[0])
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
            return func(*_halve_gradients(args), **kwargs)
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
        # Only the deviation is cut from the graph: subtracting the mean is linear already.
        axes = tuple(range(-len(shape), 0))
        centred = states - states.mean(dim=axes, keepdim=True)
        fixed = (centred.detach().square().mean(dim=axes, keepdim=True) + eps).rsqrt()
        result = centred * (fixed if weight is None else fixed * weight)
        if bias is not None:
            result = result + bias
            self.ledger.add_constant(result, bias)
        return result

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
        # Two nested products in one function: half of the gradient to the values; the weights' half is divided between
        # queries and keys.
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
            self.ledger.add_constant(result, bias)
        return result

    def _sum_of_product(
        self, func: Any, constant: Tensor, left: Tensor, right: Tensor, **kwargs: Any
    ) -> Tensor:
        # addmm and baddbmm: beta * constant + left @ right
        result: Tensor = func(constant, *_halve_gradients((left, right)), **kwargs)
        if not constant.requires_grad and kwargs.get("beta", 1):
            self.ledger.add_constant(result, kwargs.get("beta", 1) * constant)
        return result

    def _sum(self, func: Any, name: str, left: Any, right: Any, **kwargs: Any) -> Any:
        result = func(left, right, **kwargs)
        # A summand that depends on the input keeps its gradient. A constant one goes to the ledger, with its sign.
        left_depends, right_depends = _depends((left,)), _depends((right,))
        if left_depends and not right_depends:
            sign = -1 if _DIFFERENCES.get(name) == 1 else 1
            self.ledger.add_constant(result, sign * kwargs.get("alpha", 1) * right)
        elif right_depends and not left_depends:
            sign = -1 if _DIFFERENCES.get(name) == -1 else 1
            self.ledger.add_constant(result, sign * left)
        return result


def with_fixed_ratio(
    function: Callable[..., Tensor], states: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """function(states), computed as states times a ratio that is held fixed; at 0 the ratio is the slope."""
    with torch.no_grad():
        result = function(states.detach().clone(), *args, **kwargs)
        ratio = result / states
        if bool((states == 0).any()):
            # 1e-4: near enough for the slope, far enough that float32 does not round the quotient
            near = torch.full((), 1e-4, dtype=states.dtype, device=states.device)
            slope = function(near.clone(), *args, **kwargs) / near
            ratio = torch.where(states == 0, slope, ratio)
    return states * ratio


def scale_gradient(states: Tensor, share: float) -> Tensor:
    """The same values, with the gradient multiplied by `share`."""
    if not states.requires_grad:
        return states
    same = states.view_as(states)
    on_gradient(same, lambda gradient: share * gradient)
    return same


def on_gradient(states: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
    """Call the hook with the gradient by this tensor in the backward pass; a returned tensor replaces the gradient."""
    states.register_hook(hook)  # type: ignore[no-untyped-call]


def _halve_gradients(factors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Factors of a product; if two of them depend on the input, each gets half of the gradient."""
    if sum(_depends((factor,)) for factor in factors) < 2:
        return factors
    return tuple(
        scale_gradient(factor, 0.5) if isinstance(factor, Tensor) else factor for factor in factors
    )


def _depends(args: Any) -> bool:
    """Whether a tensor among the arguments, or in lists of them, depends on the input."""
    return any(
        it.requires_grad
        if isinstance(it, Tensor)
        else isinstance(it, list | tuple) and _depends(it)
        for it in args
    )


@contextmanager
def linearise(model: AttentionModel, rules: Rules, ledger: Ledger) -> Iterator[None]:
    """Run the model's forward passes under these rules while this is open."""
    check_rules(rules)
    trained = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    with ExitStack() as stack:
        for parameter in trained:
            parameter.requires_grad_(False)
            stack.callback(parameter.requires_grad_, True)
        for module in model.model.modules():
            # May consist of several functions
            if type(module).__module__ == "transformers.activations":
                stack.enter_context(_fix_ratio_of(module))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_Rules(rules, ledger))
        yield


@contextmanager
def _fix_ratio_of(module: nn.Module) -> Iterator[None]:
    """Apply `with_fixed_ratio` to the forward of a module."""
    original = module.forward

    def forward(states: Tensor) -> Tensor:
        return with_fixed_ratio(original, states)

    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
