"""Lenses: ways to compute a map of a head, such as raw weights or norm-weighted attention.

Each file defines one lens and is registered automatically. The name of the lens is that of the file, with hyphens
instead of underscores. `config/names` lists the files without importing them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headscope.config import names
from headscope.config.checks import parse_lenses
from headscope.errors import HeadscopeError
from headscope.model.lenses._base import RANK, ROWS, SIGN, Lens, LensObserver

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel

__all__ = ["LENSES", "RANK", "ROWS", "SIGN", "Lens", "LensObserver", "make_lens"]


def _load(name: str) -> type[Lens]:
    """The class of a lens, from its file."""
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Lens) and vars(value).get("name") == name:
            return value
    raise TypeError(f'{module.__file__} has no subclass of Lens with name = "{name}"')


def make_lens(name: str, model: AttentionModel) -> Lens:
    """The lens of this name for a model."""
    if not isinstance(name, str):
        raise HeadscopeError(
            f"{name!r} is not the name of one lens",
            where="lens",
            fix="Open several contexts of model.watched inside each other",
        )
    (checked,) = parse_lenses([name], where="lens")
    return LENSES[checked](model)


LENSES: dict[str, type[Lens]] = {name: _load(name) for name in names.LENSES}
