"""A mask by its name: `star`, `window:width=8`, `longformer-no-diagonal`, `window+star`, `mask.npz`, `mask.npy`."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, reduce

import torch
from torch import Tensor

from headscope.config.masks import FILES, WITHOUT_DIAGONAL, read_parameters, split_mask
from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, Site
from headscope.masks.mask_file import read_positions
from headscope.masks.patterns import PATTERNS, Mask, Pattern


def read_mask(spec: str, option: str = "`mask`") -> Mask:
    """A mask as it is written: a name with parameters, several with a plus between them. option: as errors name it."""
    parts = [_read_part(part.strip(), f'{option} "{spec}"') for part in spec.split("+")]
    if len(parts) == 1:
        return parts[0]

    def either(length: int, site: Site | None) -> Tensor:
        return reduce(operator.or_, (part.at(length, site) for part in parts))

    def check(heads: Iterable[Head]) -> None:
        known = tuple(heads)
        for part in parts:
            part.check(known)

    per = max((part.per for part in parts), key=("model", "layer", "head").index)
    return Mask(spec, either, per, check)


def sparsity(mask: Tensor) -> float:
    """The share of positions that may not be attended to."""
    return 1.0 - float(mask.float().mean())


def resolve_mask(allowed: Tensor, *, is_causal: bool = False) -> Tensor:
    """A mask as attention meets it: nothing later in a decoder, and a query that may attend to nothing sees itself."""
    if is_causal:
        allowed = allowed.tril()
    itself = torch.eye(allowed.shape[-1], dtype=torch.bool)
    return allowed | (itself & ~allowed.any(dim=-1, keepdim=True))


def add_seed(spec: str, seed: int) -> str:
    """A mask as it is written, with this seed for every part that is drawn by chance and names none."""
    parts = []
    for part in map(str.strip, spec.split("+")):
        name, told, without = split_mask(part)
        keys = [item.partition("=")[0] for item in told.split(",")]
        by_chance = name in PATTERNS and "seed" in defaults_of(PATTERNS[name])
        if by_chance and "seed" not in keys:
            told = f"{told},seed={seed}" if told else f"seed={seed}"
            part = f"{name}:{told}{WITHOUT_DIAGONAL if without else ''}"
        parts.append(part)
    return "+".join(parts)


def files_of(spec: str) -> list[str]:
    """The files that a mask is read from."""
    parts = [part.strip().removesuffix(WITHOUT_DIAGONAL) for part in spec.split("+")]
    return [part for part in parts if part.endswith(FILES)]


def check_fits(spec: str, length: int, option: str = "`mask`") -> None:
    """Refuse parameters that mean nothing at a length: a position beyond it, more keys dropped than there are."""
    for part in map(str.strip, spec.split("+")):
        name, told, _ = split_mask(part)
        where = f'{option} "{spec}"'
        if name not in PATTERNS:
            continue
        given = read_parameters(told, defaults_of(PATTERNS[name]), where)
        beyond = [one for one in given.get("globals", ()) if one.isdecimal() and int(one) >= length]
        if beyond:
            what = f"{length} positions have no position {beyond[0]}"
            expected = f"0 to {length - 1}, or a larger `length`"
            raise HeadscopeError(what, where=where, expected=expected)
        if given.get("drop", 0) >= length:
            what = f"{given['drop']} of {length} keys cannot be dropped"
            expected = f"less than {length}, or a larger `length`"
            raise HeadscopeError(what, where=where, expected=expected)


def _read_part(part: str, where: str) -> Mask:
    file = part.removesuffix(WITHOUT_DIAGONAL)
    if file.endswith(FILES):
        held = read_positions(file)
        return replace(held, diagonal=held.diagonal and part == file).mask(part)
    name, told, without = split_mask(part)
    if name not in PATTERNS:
        raise HeadscopeError(f'"{name}" is no mask', where=where, expected=choices(name, PATTERNS))
    given = read_parameters(told, defaults_of(PATTERNS[name]), where)

    @lru_cache(maxsize=512)
    def made(length: int) -> Tensor:
        found = PATTERNS[name](length, **given)
        if without:
            found = found & PATTERNS["no-diagonal"](length)
        return found[None]

    return Mask(part, lambda length, site: made(length))


def defaults_of(make: Pattern) -> dict[str, object]:
    """The parameters of a mask besides its length, with their defaults."""
    return {one.name: one.default for one in list(inspect.signature(make).parameters.values())[1:]}
