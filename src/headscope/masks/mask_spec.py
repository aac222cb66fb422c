"""Reads masks from text: `star`, `window:width=8`, `longformer-no-diagonal`, `window+star`, `mask.npz`, `mask.npy`."""

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
    """The mask for a text: a pattern or a file, or several joined by "+". option: name of the option in errors."""
    parts = [_read_part(part.strip(), f'{option} "{spec}"') for part in spec.split("+")]
    if len(parts) == 1:
        return parts[0]

    def union(length: int, site: Site | None) -> Tensor:
        return reduce(operator.or_, (part.at(length, site) for part in parts))

    def check(heads: Iterable[Head]) -> None:
        listed = tuple(heads)
        for part in parts:
            part.check(listed)

    per = max((part.per for part in parts), key=("model", "layer", "head").index)
    return Mask(spec, union, per, check)


def sparsity(mask: Tensor) -> float:
    """The share of pairs of positions that a mask forbids."""
    return 1.0 - float(mask.float().mean())


def resolve_mask(allowed: Tensor, *, is_causal: bool = False) -> Tensor:
    """The mask as attention applies it: causal in a decoder, and a query without any allowed key attends to itself."""
    if is_causal:
        allowed = allowed.tril()
    itself = torch.eye(allowed.shape[-1], dtype=torch.bool)
    return allowed | (itself & ~allowed.any(dim=-1, keepdim=True))


def add_seed(spec: str, seed: int) -> str:
    """The text of a mask in which every random pattern without a seed gets this seed."""
    parts = []
    for part in map(str.strip, spec.split("+")):
        name, parameters, without_diagonal = split_mask(part)
        names = [item.partition("=")[0] for item in parameters.split(",")]
        if name in PATTERNS and "seed" in defaults_of(PATTERNS[name]) and "seed" not in names:
            parameters = f"{parameters},seed={seed}" if parameters else f"seed={seed}"
            part = f"{name}:{parameters}{WITHOUT_DIAGONAL if without_diagonal else ''}"
        parts.append(part)
    return "+".join(parts)


def files_of(spec: str) -> list[str]:
    """The files named in the text of a mask."""
    parts = [part.strip().removesuffix(WITHOUT_DIAGONAL) for part in spec.split("+")]
    return [part for part in parts if part.endswith(FILES)]


def check_fits(spec: str, length: int, option: str = "`mask`") -> None:
    """Raise an error for parameters that need a longer text: global positions, or a number of dropped keys."""
    where = f'{option} "{spec}"'
    for part in map(str.strip, spec.split("+")):
        name, text, _ = split_mask(part)
        if name not in PATTERNS:
            continue
        parameters = read_parameters(text, defaults_of(PATTERNS[name]), where)
        positions = [int(p) for p in parameters.get("globals", ()) if p.isdecimal()]
        beyond = next((position for position in positions if position >= length), None)
        what = ""
        if beyond is not None:
            what = f"global positions must be 0 to {length - 1}, got {beyond}"
        elif parameters.get("drop", 0) >= length:
            what = f"drop must be less than {length}, got {parameters['drop']}"
        if what:
            raise HeadscopeError(what, where=where, fix="Change it, or give a larger `length`")


def _read_part(part: str, where: str) -> Mask:
    file = part.removesuffix(WITHOUT_DIAGONAL)
    if file.endswith(FILES):
        positions = read_positions(file)
        return replace(positions, diagonal=positions.diagonal and part == file).mask(part)
    name, text, without_diagonal = split_mask(part)
    if name not in PATTERNS:
        raise HeadscopeError(
            f'"{name}" is not a mask', where=where, expected=choices(name, PATTERNS)
        )
    parameters = read_parameters(text, defaults_of(PATTERNS[name]), where)

    @lru_cache(maxsize=512)
    def draw(length: int) -> Tensor:
        allowed = PATTERNS[name](length, **parameters)
        if without_diagonal:
            allowed = allowed & PATTERNS["no-diagonal"](length)
        return allowed[None]

    return Mask(part, lambda length, site: draw(length))


def defaults_of(pattern: Pattern) -> dict[str, object]:
    """The parameters of a pattern, without the length, and their defaults."""
    _, *parameters = inspect.signature(pattern).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}
