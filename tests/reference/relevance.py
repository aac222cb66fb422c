"""Relevance without gradients: run twice, the second time with the gates of the first and one head switched off.

With every gate held fixed the model is linear, so what is missing without a head is what came through it. By AttnLRP's
rules it is not: there the products of attention keep one factor at a time, the softmax moves, and a head's relevance is
how fast what is said grows with the head's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Gate


class Gates(TorchFunctionMode):
    """The first pass writes down every gate, later ones find them again, in the order of calls.

    width    of the products of a gated layer, where there is one: half of what is missing comes by each factor
    attnlrp  whether queries, keys and the softmax move, each product with one factor at a time
    """

    def __init__(self, width: int | None, *, attnlrp: bool = False) -> None:
        super().__init__()
        self.width, self.attnlrp = width, attnlrp
        self.values: list[Any] = []
        self.turn: int | None = None
        self.inside = False

    def again(self) -> None:
        self.turn = 0

    def gate(self, value: Any) -> Any:
        if self.turn is None:
            self.values.append(value)
            return value
        self.turn += 1
        return self.values[self.turn - 1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.inside:
            return func(*args, **kwargs)
        if name == "layer_norm":
            x, _, weight, bias, eps = (*args, *list(kwargs.values()))[:5]
            scale = self.gate(1 / torch.sqrt(x.var(dim=-1, keepdim=True, unbiased=False) + eps))
            y = (x - x.mean(dim=-1, keepdim=True)) * scale * weight
            return y if bias is None else y + bias
        if name in ("rsqrt", "erf", "sigmoid") or (name == "softmax" and not self.attnlrp):
            return self.gate(func(*args, **kwargs))
        if (
            name == "matmul" and self.attnlrp and all(x.dim() == 4 for x in args)
        ):  # of heads: MPNet's attention
            single, other = args
            first, second = self.gate((single, other))
            return (single @ second + first @ other) / 2
        if name == "scaled_dot_product_attention":
            return self.attention(*args, **kwargs)
        if name in ("gelu", "tanh", "silu", "relu"):
            return self.activation(lambda x: func(x, *args[1:], **kwargs), args[0])
        if name in ("mul", "__mul__") and all(
            isinstance(x, Tensor) and x.shape == args[0].shape for x in args
        ):
            single, other = args
            if single.dim() == 3 and single.shape[-1] == self.width:
                first, second = self.gate((single, other))
                return (single * second + first * other) / 2
        return func(*args, **kwargs)

    def activation(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return x * self.gate(function(x) / x)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, **kwargs: Any
    ) -> Tensor:
        shared = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(shared, dim=1) for x in (k, v))
        scale = kwargs.get("scale") or q.shape[-1] ** -0.5
        if self.attnlrp:
            first_q, first_k, first_v = self.gate((q, k, v))
            scores = (q @ first_k.transpose(-1, -2) + first_q @ k.transpose(-1, -2)) / 2 * scale
        else:
            scores = q @ k.transpose(-1, -2) * scale
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -1e30)
        elif attn_mask is not None:
            scores = scores + attn_mask
        if kwargs.get("is_causal"):
            scores = scores.masked_fill(
                ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -1e30
            )
        moved = torch.softmax(scores, dim=-1)
        first = self.gate(moved)
        mixed: Tensor = (moved @ first_v + first @ v) / 2 if self.attnlrp else first @ v
        return mixed


@contextmanager
def _whole_activations(model: AttentionModel, gates: Gates) -> Iterator[None]:
    """transformers' activations that are made of several functions count as one."""
    changed = [m for m in model.model.modules() if type(m).__module__ == "transformers.activations"]
    for module in changed:

        def forward(x: Tensor, original: Callable[[Tensor], Tensor] = module.forward) -> Tensor:
            gates.inside = True
            try:
                return x * gates.gate(original(x) / x)
            finally:
                gates.inside = False

        module.forward = forward
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def by_removal(
    model: AttentionModel, say: Callable[[], Tensor], heads: list[Head], width: int | None = None
) -> NDArray[np.float64]:
    """[sequence, head]: what the model says minus what it says without the head, all gates held fixed."""
    gates = Gates(width)
    actual = []
    with torch.no_grad(), _whole_activations(model, gates), model.edited():
        with gates:
            whole = say()
        for head in heads:
            gates.again()
            with gates, model.edited(Ablate([head])):
                actual.append(whole - say())
    return torch.stack(actual, dim=1).double().numpy()


def by_growth(
    model: AttentionModel,
    say: Callable[[], Tensor],
    heads: list[Head],
    width: int | None,
    step: float,
) -> NDArray[np.float64]:
    """[sequence, head]: by AttnLRP's rules, how fast what is said grows with the head's output: finite differences."""
    gates = Gates(width, attnlrp=True)
    actual = []
    with torch.no_grad(), _whole_activations(model, gates), model.edited():
        with gates:
            say()
        for head in heads:
            ends = []
            for factor in (1 + step, 1 - step):
                gates.again()
                with gates, model.edited(Gate({head: factor})):
                    ends.append(say())
            actual.append((ends[0] - ends[1]) / (2 * step))
    return torch.stack(actual, dim=1).double().numpy()


def attnlrp_attention(
    q: NDArray[np.float64],
    k: NDArray[np.float64],
    v: NDArray[np.float64],
    relevance: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """One head [token, width] by AttnLRP's rules, in loops: what of its output's relevance q, k and v get."""
    n, width = q.shape
    scores = np.array(
        [
            [sum(q[i, c] * k[j, c] for c in range(width)) / width**0.5 for j in range(n)]
            for i in range(n)
        ]
    )
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    of_q, of_k, of_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    of_weights = np.zeros((n, n))
    for i in range(n):
        for c in range(width):
            output = sum(weights[i, j] * v[j, c] for j in range(n))
            for j in range(n):
                share = weights[i, j] * v[j, c] / output * relevance[i, c]
                of_weights[i, j] += share / 2
                of_v[j, c] += share / 2
    for i in range(n):
        for j in range(n):
            of_score = scores[i, j] * (of_weights[i, j] - weights[i, j] * of_weights[i].sum())
            for c in range(width):
                share = q[i, c] * k[j, c] / width**0.5 / scores[i, j] * of_score
                of_q[i, c] += share / 2
                of_k[j, c] += share / 2
    return of_q, of_k, of_v
