"""Parsers of options that are text in the shell: lists, pairs, numbers. In Python they also take the value itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from headscope.config.checks import parse_lenses
from headscope.errors import HeadscopeError, names_in


def pairs(
    name: str, form: str = "NAME=NAME"
) -> Callable[[str | Mapping[str, str]], dict[str, str]]:
    """A parser of `a=b,c=d` to a dictionary. form: the two sides of a pair, for errors."""

    def parse(value: str | Mapping[str, str]) -> dict[str, str]:
        if isinstance(value, Mapping):
            return dict(value)
        result: dict[str, str] = {}
        for word in value.split(","):
            key, equals, item = (part.strip() for part in word.partition("="))
            if not (key and equals and item):
                raise HeadscopeError(f'`{name}` must be {form},{form}…, got "{word}"')
            result[key] = item
        return result

    return parse


def numbers(name: str) -> Callable[[Any], tuple[int, ...]]:
    """A parser of `3,10,20`, a number or a list of numbers to a tuple. name: the option in errors."""

    def parse(value: str | int | Iterable[int]) -> tuple[int, ...]:
        if isinstance(value, int):
            return (value,)
        if not isinstance(value, str):
            return tuple(value)
        words = [word.strip() for word in value.split(",")]
        if not all(word.isdigit() for word in words):
            raise HeadscopeError(
                f'`{name}` must be one or more whole numbers such as 3,10,20, got "{value}"'
            )
        return tuple(int(word) for word in words)

    return parse


def decimals(name: str) -> Callable[[Any], tuple[float, ...]]:
    """A parser of `0.5,0.9`, a number or a list of numbers to a tuple. name: the option in errors."""

    def parse(value: str | float | Iterable[float]) -> tuple[float, ...]:
        words: Any = value.split(",") if isinstance(value, str) else value
        try:
            return tuple(map(float, words if isinstance(words, Iterable) else (words,)))
        except (TypeError, ValueError) as cause:
            raise HeadscopeError(
                f"`{name}` must be numbers such as 0.5,0.9, got {value!r}"
            ) from cause

    return parse


def sizes(name: str) -> Callable[[Any], int | tuple[int, ...]]:
    """A parser of `3,10,20` or a list of numbers to a tuple, each at least 1.

    A single number in Python stays a number: it is the number of sizes, which are then evenly spaced.
    """

    def parse(value: str | int | Iterable[int]) -> int | tuple[int, ...]:
        result = value if isinstance(value, int) else numbers(name)(value)
        smallest = result if isinstance(result, int) else min(result, default=0)
        if smallest < 1:
            raise HeadscopeError(f"`{name}` must be at least 1, got {smallest}")
        return result

    return parse


def check_distinct(name: str, values: Collection[Any] | None) -> None:
    """Refuse an empty list and a list that repeats a value; None is allowed."""
    if values is None:
        return
    if not values:
        raise HeadscopeError(f"`{name}` must have at least one value, got none")
    repeated = next((value for i, value in enumerate(values) if value in list(values)[:i]), None)
    if repeated is not None:
        raise HeadscopeError(f"`{name}` must not repeat a value, got {repeated} twice")


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    """`a,b` or a list of names as a tuple."""
    return (
        tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else tuple(value)
    )


def name_list(option: str) -> Callable[[Any], tuple[str, ...]]:
    """A parser of `a,b` or a list of names to a tuple without duplicates. option: its name in errors."""
    return lambda value: tuple(dict.fromkeys(names_in(value, option)))


def file_list(value: Any) -> tuple[str | Path, ...]:
    """A path, or a list of paths, as a tuple."""
    paths = (
        (value,) if isinstance(value, str | Path) or not isinstance(value, Iterable) else (*value,)
    )
    for path in paths:
        if not isinstance(path, str | Path):
            raise HeadscopeError(f"{path!r} is not a file", expected="a path, or a list of paths")
    return paths


def lens_list(value: Any) -> tuple[str, ...]:
    """Names of lenses, with raw first. Raw is always measured: roles are defined on it, and it costs nothing extra."""
    return tuple(dict.fromkeys(["raw", *parse_lenses(value)]))
