"""Methods of early packages that are implemented in later packages, such as `Study.write`.

An earlier package must not import a later one. It calls `hook(name)`; `headscope/__init__`, which knows all packages,
registers which function that is. The function is imported at the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
_LOADERS: dict[str, Callable[[], Function]] = {}


def register(name: str, load: Callable[[], Function]) -> None:
    """Set the function that `hook(name)` returns; `load` imports it."""
    _LOADERS[name] = load


def hook(name: str) -> Function:
    """The function registered under this name."""
    return _LOADERS[name]()
