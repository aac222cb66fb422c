"""Checks of single values that need no model: names, counts, ranges, devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from headscope.config.names import DEVICES, LENSES, REPAIRS, RULES, TOKEN_MAPS
from headscope.errors import HeadscopeError, choices

_DEVICE = re.compile(rf"({'|'.join(DEVICES)})(:\d+)?")


def check_count(count: int, where: str) -> None:
    if count < 1:
        raise HeadscopeError(f"{count} is too few", where=where, expected="1 or more")


def check_choice(value: str, known: Iterable[str], where: str, what: str, meant: Sequence[str] = ()) -> None:
    """Refuse a name that is not among the known ones. what: as in `is no task`; meant: suggested for this value."""
    if value not in known:
        raise HeadscopeError(f'"{value}" {what}', where=where, expected=choices(value, known, meant))


def check_each(values: str, known: Sequence[str], where: str, what: str) -> None:
    """The same for every name in a list with commas."""
    for value in values.split(","):
        check_choice(value.strip(), known, where, what)


def check_range(value: float, holds: Callable[[float], bool], where: str, what: str, expected: str) -> None:
    """Refuse a number out of its range, NaN among them. what: as in `is no share`."""
    if not holds(value):
        raise HeadscopeError(f"{value} {what}", where=where, expected=expected)


def check_rules(rules: str) -> None:
    check_choice(rules, RULES, "--rules", "are no rules of relevance")


def check_device(device: str) -> None:
    """Refuse what no machine has; whether this one has it is asked of torch, later."""
    if not _DEVICE.fullmatch(device):
        raise HeadscopeError(
            f'"{device}" is not a device', where="--device", expected=choices(device, [*DEVICES, "cuda:0"])
        )


def repair_names(repairs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Repairs in a list with commas, or as a sequence; `fold` comes first, since a fit takes the means into account."""
    given = repairs.split(",") if isinstance(repairs, str) else repairs or ()
    wanted = [one.strip() for one in given]
    for repair in wanted:
        check_choice(repair, REPAIRS, "--repair", "is no repair")
    return tuple(one for one in REPAIRS if one in wanted)


def lenses_named(names: str | Iterable[str], where: str = "--lens") -> tuple[str, ...]:
    """Names of lenses, each once and in the order given: "raw,norm" or a list of them."""
    asked = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for name in asked:
        if name in TOKEN_MAPS:
            raise HeadscopeError(
                f'"{name}" is a map of tokens over all heads, no lens on a head',
                where=where,
                expected=f"some of {', '.join(LENSES)}",
                mend=f'See it by headscope look --lens {name}, or headscope.token_map(model, text, by="{name}")',
            )
        check_choice(name, LENSES, where, "is no lens")
    if not asked:
        raise HeadscopeError("no lens is named", where=where, expected=f"some of {', '.join(LENSES)}")
    return tuple(dict.fromkeys(asked))
