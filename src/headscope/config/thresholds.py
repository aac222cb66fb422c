"""The thresholds of head roles: names, defaults, and parsing of the option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from headscope.config.checks import check_choice
from headscope.errors import HeadscopeError

WHERE, RANGE = "`thresholds`", "a number from 0 to 1"


@dataclass(frozen=True)
class Thresholds:
    """The value, from 0 to 1, that a statistic of a head must pass for a role.

    neighbour   share of attention on the previous token, the next token or the token itself
    positional  share of rows with their maximum at the head's most frequent offset, among rows that have that offset
    token       share of attention on a class of tokens
    sink        mean weight on one token, over the rows that may attend to it
    broad       entropy, divided by the largest entropy that the lengths of the rows allow
    block       share of attention within the own text of a pair, above the share that chance gives
    beyond      the same, above the share that the distances between tokens explain
    confident   largest weight on a content token
    relation    gain in accuracy over the best offset, on both halves of the data
    rare        share of sentences in which the head points at one of the two rarest words
    """

    neighbour: float = 0.5
    positional: float = 0.9
    token: float = 0.6
    sink: float = 0.3
    broad: float = 0.78
    block: float = 0.3
    beyond: float = 0.1
    confident: float = 0.8
    relation: float = 0.1
    rare: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= 1:  # true for NaN, too
                raise HeadscopeError(f"{name} must be {RANGE}, got {value}", where=WHERE)


DEFAULTS: dict[str, float] = asdict(Thresholds())


def threshold_values(values: Any) -> dict[str, float]:
    """Thresholds by name, from texts NAME=VALUE (several separated by commas), a mapping, or a `Thresholds`.

    From a `Thresholds`, only the values that differ from their defaults are returned.
    """
    if is_dataclass(values):
        return {name: value for name, value in vars(values).items() if value != DEFAULTS[name]}
    if isinstance(values, Mapping):
        pairs = list(values.items())
    else:
        typed = [values] if isinstance(values, str) else values
        pairs = [_parse(word) for words in typed for word in words.split(",")]
    result: dict[str, float] = {}
    for name, value in pairs:
        check_choice(name, DEFAULTS, WHERE, "is not a threshold")
        if name in result:
            raise HeadscopeError(f'"{name}" is given twice', where=WHERE, expected="each name once")
        result[name] = value
        Thresholds(**{name: value})  # checks its range
    return result


def _parse(word: str) -> tuple[str, float]:
    name, equals, value = (part.strip() for part in word.partition("="))
    check_choice(name, DEFAULTS, WHERE, "is not a threshold")
    if not equals:
        expected = f"NAME=VALUE, such as {name}={DEFAULTS[name]}"
        raise HeadscopeError(f'"{name}" has no value', where=WHERE, expected=expected)
    try:
        return name, float(value)
    except ValueError as error:
        raise HeadscopeError(f'{name} must be {RANGE}, got "{value}"', where=WHERE) from error
