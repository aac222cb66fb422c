"""A mask by its name: `star`, `window:width=8`, `longformer-no-diagonal`, `window+random:keep=0.1`, `mask.npz`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from torch import Tensor

from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, Site
from headscope.masks.patterns import PATTERNS, Pattern, Positions

WITHOUT_DIAGONAL = "-no-diagonal"


@dataclass(frozen=True)
class Mask:
    """Which position may attend to which, at any length.

    make   from a length and a site to bool [head, position, position], or [1, …] where all heads are alike
    per    what has a mask of its own: the model, each layer or each head
    check  refuses a model that the mask is not for
    """

    name: str
    make: Callable[[int, Site | None], Tensor]
    per: str = "model"
    check: Callable[[Iterable[Head]], None] = lambda heads: None

    def at(self, length: int, site: Site | None = None) -> Tensor:
        """Bool [head or 1, length, length]: True where the row's position may attend to the column's."""
        return self.make(length, site)


def read_mask(spec: str) -> Mask:
    """A mask as it is written: a name with parameters, several with a plus between them."""
    parts = [_read_part(part.strip(), spec) for part in spec.split("+")]
    if len(parts) == 1:
        return parts[0]

    def either(length: int, site: Site | None) -> Tensor:
        together = parts[0].at(length, site)
        for part in parts[1:]:
            together = together | part.at(length, site)
        return together

    def check(heads: Iterable[Head]) -> None:
        known = tuple(heads)
        for part in parts:
            part.check(known)

    per = max((part.per for part in parts), key=("model", "layer", "head").index)
    return Mask(spec, either, per, check)


def sparsity(mask: Tensor) -> float:
    """The share of positions that may not be attended to."""
    return 1.0 - float(mask.float().mean())


def _read_part(part: str, spec: str) -> Mask:
    name, _, told = part.partition(":")
    without = False
    if told.endswith(WITHOUT_DIAGONAL):
        told, without = told.removesuffix(WITHOUT_DIAGONAL), True
    elif name.endswith(WITHOUT_DIAGONAL) and name not in PATTERNS:
        name, without = name.removesuffix(WITHOUT_DIAGONAL), True
    if part.removesuffix(WITHOUT_DIAGONAL).endswith(".npz"):
        return _read_file(part)
    if name not in PATTERNS:
        raise HeadscopeError(f'"{name}" is no mask', where=f'--mask "{spec}"', expected=choices(name, PATTERNS))
    given = _parameters(PATTERNS[name], told, spec)

    @lru_cache(maxsize=512)
    def made(length: int) -> Tensor:
        found = PATTERNS[name](length, **given)
        if without:
            found = found & PATTERNS["no-diagonal"](length)
        return found[None]

    return Mask(part, lambda length, site: made(length))


def _read_file(part: str) -> Mask:
    from headscope.masks.file import read_positions

    held = read_positions(part.removesuffix(WITHOUT_DIAGONAL))
    return replace(held, diagonal=held.diagonal and not part.endswith(WITHOUT_DIAGONAL)).mask(part)


def _parameters(make: Pattern, told: str, spec: str) -> dict[str, Any]:
    """`width=8,globals=first/12` as the function takes it."""
    kinds = {one.name: one.annotation for one in _known(make)}
    found: dict[str, Any] = {}
    for item in told.split(",") if told else []:
        key, _, value = item.partition("=")
        where = f'--mask "{spec}"'
        if key not in kinds:
            expected = written_parameters(make) or "no parameters"
            raise HeadscopeError(f'"{key}" is no parameter of this mask', where=where, expected=expected)
        found[key] = _value(value, kinds[key], key, where)
    return found


def _value(value: str, kind: Any, key: str, where: str) -> Any:
    if kind == Positions:
        positions = tuple(value.split("/"))
        wrong = [one for one in positions if one not in ("first", "middle", "last") and not one.isdecimal()]
        if wrong:
            raise HeadscopeError(
                f'"{wrong[0]}" is no position', where=where, expected="numbers from 0, first, middle or last, with /"
            )
        return positions
    least = 1 if key == "stride" else 0
    try:
        number = kind(value)
    except ValueError as cause:
        raise HeadscopeError(f'{key} is "{value}"', where=where, expected=f"a number, {least} or more") from cause
    if not number >= least or (kind is float and number > 1):
        expected = "0 to 1" if kind is float else f"{least} or more"
        raise HeadscopeError(f"{key} is {value}", where=where, expected=expected)
    return number


def _known(make: Pattern) -> list[inspect.Parameter]:
    """The parameters of a mask beside its length."""
    return list(inspect.signature(make, eval_str=True).parameters.values())[1:]


def written_parameters(make: Pattern) -> str:
    """A mask's parameters with their defaults, as they are written."""
    defaults = {one.name: one.default for one in _known(make)}
    return ",".join(f"{name}={'/'.join(x) if isinstance(x, tuple) else x}" for name, x in defaults.items())
