"""Temporarily replace the forward methods of modules, so that a pass can skip modules whose output is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn

from headscope.model.anatomy import weight_of

Patch = AbstractContextManager[None]


def patch_once(module: nn.Module, forward: Callable[..., Any]) -> Patch:
    """While open, replace the module's forward method for its next call only."""
    original = module.forward
    is_first = True

    def once(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            return forward(*args, **kwargs)
        return original(*args, **kwargs)

    return patch_forward(module, once)


@contextmanager
def patch_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """While open, replace the module's forward method. It is restored at the end, also after an exception."""
    before = module.__dict__.get("forward")  # a replacement by an outer patch_forward
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before


def return_zeros(module: nn.Module) -> Callable[..., Tensor]:
    """A forward method for a linear layer: zeros [..., out], expanded from one number and so without memory."""
    width = weight_of(module).shape[0]  # of the output

    def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return hidden.new_zeros(()).expand(*hidden.shape[:-1], width)

    return forward
