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
from headscope.heads import check_heads

_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")
_DEVICE = re.compile(rf"({'|'.join(DEVICES)})(:\d+)?")


def check_count(count: int, where: str) -> None:
    if count < 1:
        raise HeadscopeError(f"{count} is too few", where=where, expected="1 or more")


def check_choice(value: str, names: Iterable[str], where: str, what: str) -> None:
    """Refuse a name that is not among these. what: the complaint after the name, such as `is not a lens`."""
    if value not in names:
        raise HeadscopeError(f'"{value}" {what}', where=where, expected=choices(value, names))


def check_rules(rules: str) -> None:
    check_choice(rules, RULES, "`relevance_rules`", "does not name rules of relevance propagation")


def check_pairs(kinds: Iterable[str], heads: str | None) -> None:
    """Refuse to ablate all pairs of heads, which are thousands: `heads` must be given."""
    if "pair" in kinds and heads is None:
        raise HeadscopeError(
            "pairs of all heads are too many",
            where='`kind="pair"`',
            fix='Name some: `heads="3.2,4.*"`',
        )


def check_length(max_length: int, longest: int, model: str) -> None:
    """Refuse a maximum length beyond the limit of the model. longest: that limit, in tokens."""
    if max_length > longest:
        what = f"{max_length} tokens are more than {model} can read"
        raise HeadscopeError(what, where="`max_length`", expected=f"at most {longest}")


def check_device(device: str) -> None:
    """Refuse text that is not a device. Whether this machine has the device is checked later, by torch."""
    if not _DEVICE.fullmatch(device):
        suggested = ("cuda",) if device.startswith("gpu") else ()
        expected = choices(device, ("auto", "cpu", "cuda", "cuda:1", "mps"), suggested)
        raise HeadscopeError(f'"{device}" is not a device', where="`device`", expected=expected)


def repair_names(repairs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of repairs, from text with commas or a sequence. `fold` comes first: `refit` is fitted after it."""
    words = repairs.split(",") if isinstance(repairs, str) else repairs or ()
    names = [word.strip() for word in words]
    for name in names:
        check_choice(name, REPAIRS, "`repair`", "is not a repair")
    return tuple(name for name in REPAIRS if name in names)


def check_patterns(where: str) -> Callable[[Any], None]:
    """A check of patterns such as `3.2=previous,4.*=first`. A file is not read yet. where: the option in errors."""

    def check(patterns: Any) -> None:
        if not isinstance(patterns, str) or "=" not in patterns:
            return  # a file, or a mapping from heads to patterns
        for word in patterns.split(","):
            heads, equals, pattern = word.partition("=")
            if equals:
                check_heads(heads)
                check_choice(pattern.strip(), FIXED_PATTERNS, where, "is not a fixed pattern")

    return check


def parse_lenses(names: str | Iterable[str], where: str = "`lens`") -> tuple[str, ...]:
    """Names of lenses without duplicates, in their order, from "raw,norm" or a list."""
    lenses = names_in(names, where)
    for name in lenses:
        if name in TOKEN_MAPS:
            raise HeadscopeError(
                f'"{name}" is a map of tokens over all heads, not a lens of single heads',
                where=where,
                expected=f"some of {', '.join(LENSES)}",
                fix=f"To see it: {command_line('look', 'MODEL', 'TEXT', lens=name)}, or "
                f'headscope.token_map(model, text, by="{name}")',
            )
        check_choice(name, LENSES, where, "is not a lens")
    if not lenses:
        raise HeadscopeError(
            "no lens is given", where=where, expected=f"some of {', '.join(LENSES)}"
        )
    return tuple(dict.fromkeys(lenses))


def check_model(option: str) -> Callable[[Any], None]:
    """A check of an option that takes a model: a name, a directory or a loaded model."""

    def check(model: Any) -> None:
        if not isinstance(model, str | Path) and not hasattr(model, "sites"):
            expected = "a model: a name, a directory or a loaded model"
            raise HeadscopeError(f"`{option}` must be {expected}, got {describe_value(model)}")

    return check


def check_token(token: str | None) -> None:
    """Refuse a token that is easy to guess, or that needs quoting in an address or a cookie.

    The message does not show the token: it is a secret.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        raise HeadscopeError(
            "`token` must be eight or more letters, digits, hyphens and underscores",
        )


def check_keep_metric(share: float) -> None:
    """Refuse a value that cannot be a share of a metric. A little more than 1 is possible; far more is a percentage."""
    if not 0 < share <= 10:  # nor is NaN
        raise HeadscopeError(
            f"`keep_metric` must be the share of the unpruned metric to keep, got {share:g}",
            fix=f"Did you mean {share / 100:g}?" if 10 < share <= 100 else "For example 0.99",
        )
