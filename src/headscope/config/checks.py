"""Checks of single values that need no model: names, counts, ranges, devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headscope.config.command_line import command_line
from headscope.config.names import (
    DEVICES,
    FIXED_PATTERNS,
    LENSES,
    REPAIRS,
    RULES,
    TOKEN_MAPS,
)
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError, choices, names_in

_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")
_DEVICE = re.compile(rf"({'|'.join(DEVICES)})(:\d+)?")


def check_count(count: int, where: str) -> None:
    if count < 1:
        raise HeadscopeError(f"{count} is too few", where=where, expected="1 or more")


def check_choice(value: str, names: Iterable[str], where: str, what: str) -> None:
    """Refuse a name that is not among these. what: as in `is no task`."""
    if value not in names:
        raise HeadscopeError(f'"{value}" {what}', where=where, expected=choices(value, names))


def check_rules(rules: str) -> None:
    check_choice(rules, RULES, "`relevance_rules`", "are no rules of relevance")


def check_pairs(kinds: Iterable[str], heads: str | None) -> None:
    """Refuse to ablate every pair of heads: there are thousands."""
    if "pair" in kinds and heads is None:
        raise HeadscopeError(
            "pairs of all heads are too many",
            where='`kind="pair"`',
            fix='Name some: `heads="3.2,4.*"`',
        )


def check_length(max_length: int, longest: int, model: str) -> None:
    """Refuse texts longer than the model can read. longest: in tokens."""
    if max_length > longest:
        what = f"{max_length} tokens are more than {model} can read"
        raise HeadscopeError(what, where="`max_length`", expected=f"at most {longest}")


def check_device(device: str) -> None:
    """Refuse what no machine has; whether this one has it is asked of torch, later."""
    if not _DEVICE.fullmatch(device):
        suggested = ("cuda",) if device.startswith("gpu") else ()
        expected = choices(device, ("auto", "cpu", "cuda", "cuda:1", "mps"), suggested)
        raise HeadscopeError(f'"{device}" is not a device', where="`device`", expected=expected)


def repair_names(repairs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Repairs in a list with commas, or as a sequence; `fold` comes first, since a fit takes the means into account."""
    words = repairs.split(",") if isinstance(repairs, str) else repairs or ()
    names = [word.strip() for word in words]
    for name in names:
        check_choice(name, REPAIRS, "`repair`", "is not a repair")
    return tuple(name for name in REPAIRS if name in names)


def check_patterns(where: str) -> Callable[[Any], None]:
    """A check of patterns such as `3.2=previous,4.*=first`; a file is read later. where: as errors name it."""

    def check(patterns: Any) -> None:
        if not isinstance(patterns, str) or "=" not in patterns:
            return  # a file, or patterns by head
        for word in patterns.split(","):
            _, equals, pattern = word.partition("=")
            if equals:
                check_choice(pattern.strip(), FIXED_PATTERNS, where, "is not a fixed pattern")

    return check


def parse_lenses(names: str | Iterable[str], where: str = "`lens`") -> tuple[str, ...]:
    """Names of lenses, each once and in the order given: "raw,norm" or a list of them."""
    lenses = names_in(names, where)
    for name in lenses:
        if name in TOKEN_MAPS:
            raise HeadscopeError(
                f'"{name}" is a map of tokens over all heads, no lens on a head',
                where=where,
                expected=f"some of {', '.join(LENSES)}",
                fix=f"See it by {command_line('look', 'MODEL', 'TEXT', lens=name)}, or "
                f'headscope.token_map(model, text, by="{name}")',
            )
        check_choice(name, LENSES, where, "is no lens")
    if not lenses:
        raise HeadscopeError(
            "no lens is named", where=where, expected=f"some of {', '.join(LENSES)}"
        )
    return tuple(dict.fromkeys(lenses))


def check_model(option: str) -> Callable[[Any], None]:
    """A check of a model that is given by name, as a directory or loaded."""

    def check(model: Any) -> None:
        if not isinstance(model, str | Path) and not hasattr(model, "sites"):
            expected = "a model: a name, a directory or a loaded model"
            raise HeadscopeError(f"`{option}` must be {expected}, got {describe_value(model)}")

    return check


def check_token(token: str | None) -> None:
    """Refuse a token that an address or a cookie cannot carry as it is, or that is soon guessed."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise HeadscopeError(
            "the token cannot be used",
            where="`token`",
            expected="eight or more letters, digits, dashes and underscores",
        )


def check_keep_metric(share: float) -> None:
    """Refuse what cannot be a share of a metric. A little more than 1 is possible; far more is a percentage."""
    if not 0 < share <= 10:  # nor is NaN
        raise HeadscopeError(
            f"must be the share of the unpruned metric to keep, got {share:g}",
            where="`keep_metric`",
            expected=None if share > 10 else "0.99, say",
            fix=f"Did you mean {share / 100:g}?" if 10 < share <= 100 else None,
        )
