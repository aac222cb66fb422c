"""Where the roles of heads begin: the thresholds, their defaults, and how they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from headscope.config.checks import check_choice
from headscope.errors import HeadscopeError

WHERE, RANGE = "`thresholds`", "a number from 0 to 1"


@dataclass(frozen=True)
class Thresholds:
    """Where a role begins, as a share.

    neighbour   mass on the previous or next token, or the token itself
    positional  of the rows that have a token at the commonest offset: those with their maximum there
    token       mass on a kind of token
    sink        mean weight on one token, of the rows that may attend to it
    broad       entropy, of what the lengths allow
    block       mass within one's own text above what chance gives; beyond: above what nearness gives
    confident   largest weight on content
    relation    gain over the best offset, on both halves
    rare        sentences in which a head points at one of the two rarest words
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
            if not 0 <= value <= 1:  # nor is NaN
                raise HeadscopeError(f"{name} must be {RANGE}, got {value}", where=WHERE)


DEFAULTS: dict[str, float] = asdict(Thresholds())


def threshold_values(values: Any) -> dict[str, float]:
    """Thresholds by name: typed as NAME=VALUE, several separated by commas; a mapping; or `Thresholds`.

    Of `Thresholds` only those that differ from their defaults. The range is from 0 to 1.
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
