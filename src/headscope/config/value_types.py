"""Checks of values against the annotations of config fields, and read-only copies of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}
_LONGEST = 80  # characters of a value in a message


def has_type(value: Any, kind: Any) -> bool:
    """Whether a value fits an annotation. A bool is not a number; a tuple may stand for a list."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(has_type(value, member) for member in arguments)
    if origin is Literal:
        return isinstance(value, str)  # the choices are checked with the option
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(has_type(x, arguments[0]) for x in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            has_type(key, arguments[0]) and has_type(x, arguments[1]) for key, x in value.items()
        )
    if origin is Callable or _is_protocol(kind):
        return callable(value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(
            value, bool
        )
    return isinstance(value, origin or kind)


def takes_mapping(kind: Any) -> bool:
    """Whether an annotation allows a dictionary, also as a member of a list."""
    origin = get_origin(kind)
    return origin in (dict, Mapping) or any(map(takes_mapping, get_args(kind)))


def _is_protocol(kind: Any) -> bool:
    return getattr(kind, "_is_protocol", False)


def describe_type(kind: Any) -> str:
    """An annotation in words: `a whole number`, `text or a path`. None is not mentioned."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        words = [describe_type(member) for member in arguments if member is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin in (list, tuple):
        members = get_args(arguments[0]) or arguments[:1]
        plurals = dict.fromkeys(_PLURALS.get(member, "values") for member in members)
        return f"a list of {' or '.join(plurals)}"
    if origin in (dict, Mapping):
        return "a dictionary"
    if origin is Callable or _is_protocol(kind):
        return "a function"
    return "text" if origin is Literal else _WORDS.get(kind, "a value")


def describe_value(value: Any) -> str:
    """A value as an error shows it: its `repr`, shortened."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class FrozenDict(dict[Any, Any]):
    """A dictionary that cannot be changed and has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("options cannot be changed; make another config by dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def freeze(value: Any) -> Any:
    """A read-only copy: lists become tuples and dictionaries `FrozenDict`, at every level."""
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return tuple(map(freeze, value))
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    return value
