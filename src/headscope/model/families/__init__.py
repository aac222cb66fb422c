"""The families of models that the seam supports: one file each (or one for several that are built alike).

A family is found by the `model_type` of a checkpoint's configuration. To add one, add a file with a `Family` in it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from headscope.errors import HeadscopeError
from headscope.model.families.family import Family

__all__ = ["Family", "families", "family_of"]


@cache
def families() -> dict[str, Family]:
    """Every supported `model_type` and its family."""
    by_type: dict[str, Family] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Family):
                by_type.update(dict.fromkeys(value.model_types, value))
    return dict(sorted(by_type.items()))


def family_of(model_type: str | None, *, where: str | Path | None = None) -> Family:
    """The family of a `model_type`; an error that lists the supported types if there is none."""
    supported = families()
    if model_type not in supported:
        raise HeadscopeError(
            f'model type "{model_type}" is not supported',
            where=where,
            expected=f"one of {', '.join(supported)}",
            fix="To add a family, see docs/reference/families.md",
        )
    return supported[model_type]
