"""Statistics of every head, one per file, registered automatically; `stream` computes all of them in one pass."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from headscope.config.checks import check_choice
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
    """All statistics, in the order of the file names."""
    kinds: dict[type[Statistic], None] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Statistic) and not isabstract(value):
                kinds[value] = None
    return tuple(kinds)


def glossary() -> dict[str, Definition]:
    """The definition of every name in the `statistic` column."""
    return {
        name: definition for kind in registry() for name, definition in kind.definitions.items()
    }


def select_statistics(
    names: list[str] | None = None, lens: type[Lens] | None = None
) -> list[Statistic]:
    """The statistics with these names among those that need only texts; all of these by default.

    lens  select only statistics that are defined for the maps of this lens; None: for raw attention
    """
    of_texts = [kind for kind in registry() if kind.needs is None]
    every = [name for kind in of_texts for name in kind.definitions]
    for name in names or []:
        check_choice(name, every, "`statistics`", "is not a statistic")
    selected = []
    for kind in of_texts:
        of_kind = tuple(
            name
            for name, definition in kind.definitions.items()
            if (names is None or name in names) and _is_defined(kind, definition, lens)
        )
        # Tables of a lens cost more than its rows: they are left out if names are given.
        has_tables = not kind.definitions and (lens is None or names is None)
        if of_kind or (has_tables and kind.lens == (None if lens is None else lens.name)):
            selected.append(kind(of_kind))
    return selected


def _is_defined(kind: type[Statistic], definition: Definition, lens: type[Lens] | None) -> bool:
    if lens is None:
        return kind.of_raw
    return definition.requires is not None and definition.requires <= lens.gives
