"""The model families that headscope supports. Each file describes one family, which may include several model types.

The family of a model is looked up by the `model_type` in its configuration. To add a family, add a file that defines a
`Family`; it is registered automatically.
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
    """{supported `model_type`: its family}, from all modules of this package."""
    by_type: dict[str, Family] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Family):
                by_type.update(dict.fromkeys(value.model_types, value))
    return dict(sorted(by_type.items()))


def family_of(model_type: str | None, *, where: str | Path | None = None) -> Family:
    """The family of a `model_type`; raises an error with the supported types if there is none."""
    supported = families()
    if model_type not in supported:
        raise HeadscopeError(
            f'model type "{model_type}" is not supported',
            where=where,
            expected=f"one of {', '.join(supported)}",
            fix="To add a family, see docs/reference/families.md",
        )
    return supported[model_type]
