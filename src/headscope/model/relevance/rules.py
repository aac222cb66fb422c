"""The rules of relevance propagation: how the backward pass treats each nonlinear function.

In a linear network, gradient times input attributes the output to the inputs exactly. Nonlinear functions are
therefore linearised around the current input. In the backward pass some of their factors are constants ("held fixed"):

norm         (x - mean) / deviation: the deviation is held fixed
activation   f(x) = x · (f(x) / x): the ratio f(x) / x is held fixed
softmax      rules "voita": the weights are held fixed, so that queries and keys get no relevance
             rules "attnlrp": the usual gradient
product      of two factors that both depend on the input: each factor gets half of the gradient. Examples: a gated
             feed-forward layer, and with "attnlrp" weights times values and queries times keys

References: Voita et al. 2021 (relevance in translation), Ali et al. 2022 (attention weights and deviations of norms
held fixed), Achtibat et al. 2024 (AttnLRP: softmax and products).

The values of the forward pass do not change. The functions are recognised as torch calls (`_Rules`), not by the names
of modules, so the rules apply to every family. Constants that are added, such as biases, are reported to a `Ledger`:
with "voita" the relevances of the inputs and of the constants sum to the output.
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
# Their result is always a factor: in a norm (x * rsqrt(variance)), or in an activation (SiLU is x * sigmoid(x)).
_GATES = {"rsqrt", "sigmoid", "erf"}
_PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "bmm", "einsum"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
# 1: left - right, -1: right - left
_DIFFERENCES = {"sub": 1, "__sub__": 1, "rsub": -1, "__rsub__": -1}


class Ledger(Protocol):
    """Records what the output is attributed to: the embeddings and the constants of a forward pass."""

    def add_embedding(self, states: Tensor, ids: Tensor) -> Tensor:
        """Record the result of an embedding layer; returns the states that the model continues with."""

    def add_constant(self, result: Tensor, constant: Tensor | float) -> None:
        """Record a constant that was added to other states, and the result of the addition."""


class _Rules(TorchFunctionMode):
    """Intercepts every torch function of a forward pass and linearises it by the rules.

    Only functions of tensors that depend on the embeddings are changed; the model's parameters have no gradient.
    """

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
        # Only the deviation is detached: subtracting the mean is linear.
        axes = tuple(range(-len(shape), 0))
        centred = states - states.mean(dim=axes, keepdim=True)
        scale = (centred.detach().square().mean(dim=axes, keepdim=True) + eps).rsqrt()
        result = centred * (scale if weight is None else scale * weight)
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
        eps = torch.finfo(states.dtype).eps if eps is None else eps
        scale = (states.detach().square().mean(dim=axes, keepdim=True) + eps).rsqrt()
        return states * (scale if weight is None else scale * weight)

    def _softmax(self, func: Any, *args: Any, **kwargs: Any) -> Tensor:
        weights: Tensor = func(*args, **kwargs)
        return weights.detach() if self.rules == "voita" else weights

    def _attention(
        self, func: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if self.rules == "voita":
            return func(query.detach(), key.detach(), value, *args, **kwargs)
        # Two nested products in one function. Values and weights get half of the gradient each; the half of the weights
        # is divided equally between queries and keys.
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
        # A term that depends on the input keeps its gradient. A constant term is recorded in the ledger, with its sign.
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
    """function(states), computed as states * ratio with a ratio that is held fixed.

    At 0 the ratio is the slope of the function, which must map 0 to 0 (as GELU does).
    """
    with torch.no_grad():
        # Cloned, because the function may write into its argument.
        result = function(states.detach().clone(), *args, **kwargs)
        ratio = result / states
        if bool((states == 0).any()):
            # 1e-4 is small enough to approximate the slope, and large enough for the precision of float32.
            near = torch.full((), 1e-4, dtype=states.dtype, device=states.device)
            slope = function(near.clone(), *args, **kwargs) / near
            ratio = torch.where(states == 0, slope, ratio)
    return states * ratio


def scale_gradient(states: Tensor, share: float) -> Tensor:
    """The same values; in the backward pass their gradient is multiplied by `share`."""
    if not states.requires_grad:
        return states
    scaled = states.view_as(states)  # a node of its own: other uses of `states` keep their gradient
    on_gradient(scaled, lambda gradient: share * gradient)
    return scaled


def on_gradient(states: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
    """Call the hook with the gradient of this tensor in the backward pass; a tensor that it returns replaces it."""
    states.register_hook(hook)  # type: ignore[no-untyped-call]


def _halve_gradients(factors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The factors of a product. If two of them depend on the input, each will get half of its gradient."""
    if sum(_depends((factor,)) for factor in factors) < 2:
        return factors
    return tuple(
        scale_gradient(factor, 0.5) if isinstance(factor, Tensor) else factor for factor in factors
    )


def _depends(args: Any) -> bool:
    """Whether an argument is a tensor that depends on the input, or a list or tuple with such a tensor."""
    return any(
        arg.requires_grad
        if isinstance(arg, Tensor)
        else isinstance(arg, list | tuple) and _depends(arg)
        for arg in args
    )


@contextmanager
def linearise(model: AttentionModel, rules: Rules, ledger: Ledger) -> Iterator[None]:
    """While open, the backward passes of the model follow these rules."""
    check_rules(rules)
    trainable = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    with ExitStack() as stack:
        # Parameters are frozen, so that exactly the tensors that depend on the input require gradients.
        for parameter in trainable:
            parameter.requires_grad_(False)
            stack.callback(parameter.requires_grad_, True)
        for module in model.model.modules():
            # Activation modules may call several torch functions, which must be linearised together.
            if type(module).__module__ == "transformers.activations":
                stack.enter_context(_fix_ratio_of(module))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_Rules(rules, ledger))
        yield


@contextmanager
def _fix_ratio_of(module: nn.Module) -> Iterator[None]:
    """While open, the forward method of a module is linearised by `with_fixed_ratio`."""
    original = module.forward

    def forward(states: Tensor) -> Tensor:
        return with_fixed_ratio(original, states)

    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
