"""Questions asked of every head: one a file, found by itself; `stream` asks them all in one pass."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from headscope.errors import HeadscopeError, choices
from headscope.model.lenses import Lens
from headscope.statistics.base import Definition, PerSequence, Statistic
from headscope.statistics.stream import stream

__all__ = [
    "Definition",
    "PerSequence",
    "Statistic",
    "glossary",
    "registry",
    "select_statistics",
    "stream",
]


@cache
def registry() -> tuple[type[Statistic], ...]:
    """Every statistic there is, in the order of the file names."""
    found: dict[type[Statistic], None] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Statistic) and not isabstract(value):
                found[value] = None
    return tuple(found)


def glossary() -> dict[str, Definition]:
    """What every name in the `statistic` column means."""
    return {
        name: definition for kind in registry() for name, definition in kind.definitions.items()
    }


def _of_texts() -> list[type[Statistic]]:
    return [kind for kind in registry() if kind.needs is None]


def select_statistics(
    names: list[str] | None = None, lens: type[Lens] | None = None
) -> list[Statistic]:
    """The statistics of plain texts that give these names; all of them by default.

    lens  those that make sense of its maps; raw attention by default
    """
    known = {
        name: definition for kind in _of_texts() for name, definition in kind.definitions.items()
    }
    for name in names or []:
        if name not in known:
            raise HeadscopeError(
                f'"{name}" is not a statistic', where="`statistics`", expected=choices(name, known)
            )
    asked = []
    for kind in _of_texts():
        wanted = tuple(
            name
            for name, definition in kind.definitions.items()
            if (names is None or name in names) and _makes_sense(kind, definition, lens)
        )
        # They cost more than a lens' rows
        of_tables = not kind.definitions and (lens is None or names is None)
        if wanted or (of_tables and kind.lens == (None if lens is None else lens.name)):
            asked.append(kind(wanted))
    return asked


def _makes_sense(kind: type[Statistic], definition: Definition, lens: type[Lens] | None) -> bool:
    if lens is None:
        return kind.of_raw
    return definition.asks is not None and definition.asks <= lens.gives
