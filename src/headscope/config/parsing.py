"""Values of options that are typed as text: lists, pairs, numbers. Each function also takes the value itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from headscope.config.checks import parse_lenses
from headscope.errors import HeadscopeError, names_in


def pairs(name: str) -> Callable[[str | Mapping[str, str]], dict[str, str]]:
    """`a=b,c=d` as a dictionary."""

    def parse(value: str | Mapping[str, str]) -> dict[str, str]:
        if isinstance(value, Mapping):
            return dict(value)
        result: dict[str, str] = {}
        for word in value.split(","):
            key, equals, item = (part.strip() for part in word.partition("="))
            if not (key and equals and item):
                raise HeadscopeError(f'`{name}` must be NAME=NAME,NAME=NAME…, got "{word}"')
            result[key] = item
        return result

    return parse


def numbers(name: str) -> Callable[[Any], tuple[int, ...]]:
    """`3,10,20`, one number or a list of numbers as a tuple."""

    def parse(value: str | int | Iterable[int]) -> tuple[int, ...]:
        if isinstance(value, int):
            return (value,)
        if not isinstance(value, str):
            return tuple(value)
        words = [word.strip() for word in value.split(",")]
        if not all(word.isdigit() for word in words):
            raise HeadscopeError(f'`{name}` must be whole numbers such as 3,10,20, got "{value}"')
        return tuple(int(word) for word in words)

    return parse


def decimals(name: str) -> Callable[[Any], tuple[float, ...]]:
    """`0.5,0.9`, one number or a list of numbers as a tuple."""

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
    """`3,10,20` or a list of numbers as a tuple, each at least 1; a number in Python is how many of them."""

    def parse(value: str | int | Iterable[int]) -> int | tuple[int, ...]:
        result = value if isinstance(value, int) else numbers(name)(value)
        smallest = result if isinstance(result, int) else min(result, default=0)
        if smallest < 1:
            raise HeadscopeError(f"`{name}` must be at least 1, got {smallest}")
        return result

    return parse


def check_distinct(name: str, values: Collection[Any] | None) -> None:
    """Refuse an empty list, and one that holds a value twice."""
    if values is None:
        return
    if not values:
        raise HeadscopeError(f"`{name}` must have at least one value, got none")
    twice = next((value for i, value in enumerate(values) if value in list(values)[:i]), None)
    if twice is not None:
        raise HeadscopeError(f"`{name}` must not repeat a value, got {twice} twice")


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    """`a,b` or a list of names as a tuple."""
    return (
        tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else tuple(value)
    )


def name_list(option: str) -> Callable[[Any], tuple[str, ...]]:
    """`a,b` or a list of names as a tuple, each name once; anything else is refused."""
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
    """Names of lenses, raw first: it costs nothing in addition to another, and roles are those of raw."""
    return tuple(dict.fromkeys(["raw", *parse_lenses(value)]))
